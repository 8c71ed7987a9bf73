// Mapped tables and filters, and what looks things up in them.
#pragma once
#include "columns/request.hpp"
#include "format/filter.hpp"
#include "format/table_view.hpp"
#include "python/module.hpp"
#include "search/request.hpp"

namespace fpstore {

// A table whose entries are found by their block and their rank in it: what Table and ColumnTable have in common.
class AnyTable {
 public:
  std::string path;
  unsigned width = 0;
  uint64_t block_count = 0;
  uint64_t set_digest = 0;

  AnyTable(const Bytes& data, std::string name) : path(std::move(name)), owner_(nb::cast(data)) {}
  virtual ~AnyTable() = default;
  unsigned words() const { return words_of(width); }

  // (values, entry counts, next block): decodes blocks from the first on while they fit into room entries, one at least.
  virtual nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const = 0;
  // (lims, fingerprints, distances) of the entries within the radius of each query; None if there are more than most.
  nb::object scan(Rows queries, unsigned radius, uint64_t first, uint64_t end, std::optional<uint64_t> most, const Stop* stop) const;
  // (lims, fingerprints, distances, more): the nearest entries of each query within the radius, without the absent ones, which
  // ascend; and whether there are others.
  nb::tuple nearest(Rows queries, unsigned radius, uint64_t limit, uint64_t first, uint64_t end, Rows absent, const Stop* stop) const;
  // (blocks, ranks), a block being 2^64 - 1 where there is none.
  nb::tuple locate(Rows fingerprints) const;
  nb::object locate_one(nb::handle fingerprint) const;
  // Entries, by blocks and ranks that the file `source` names.
  nb::object entries_at(Words blocks, Counts ranks, const std::string& source) const;
  nb::object entry_at(uint64_t block, uint32_t rank, const std::string& source) const;
  // The keys of blocks: their last entries.
  nb::object keys_of(Words blocks) const;
  nb::object key_of(uint64_t block) const;

  // The entries at n places. This and what follows needs no GIL.
  virtual Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out, Fault* fault) const = 0;
  virtual Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop, Fault* fault) const = 0;
  virtual Status read_key(uint64_t block, uint64_t* out, Fault* fault) const = 0;
  virtual Part part() const = 0;  // of a fault

 protected:
  virtual Queries checked(const Rows& fingerprints) const = 0;
  virtual Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink, Fault* fault) const = 0;
  void check_range(uint64_t first, uint64_t end) const;

 private:
  void check_read(Status status, const Fault& fault, const std::string& source) const;
  void copy_key(uint64_t block, uint64_t* out) const;

  nb::object owner_;  // keeps the mapping alive
};

class Table : public AnyTable {
 public:
  TableHeader header;
  TableView view;

  Table(Bytes data, std::string name);
  const Kernels& kernels() const { return fpstore::kernels(width); }
  nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const override;
  Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop, Fault* fault) const override;
  Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out, Fault* fault) const override;
  Status read_key(uint64_t block, uint64_t* out, Fault* fault) const override;
  Part part() const override { return Part::block; }

 private:
  // Room for the entries of a block of any width: those of one word are the most.
  static constexpr size_t kBlockWords = 2 * kMaxEntries + 8;

  Queries checked(const Rows& fingerprints) const override;
  Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink, Fault* fault) const override;
};

// A filter and its mapping.
struct Filter {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  FilterHeader header;
  std::unique_ptr<uint64_t[]> seen;
  FilterView view;
  bool told = false;

  Filter(Bytes data, std::string name);

  // Tells the logger of damage that a look-up met, once. The caller holds the GIL.
  void tell_damage() {
    if (is_damaged(view) && !told) tell();
  }

 private:
  void tell();
};

constexpr uint64_t kBriefBlocks = 1 << 7;  // a probe that reads no more of them takes microseconds

// The tables of a design, as a single probe asks them. Only tell_damage() needs the GIL.
class AnyProber {
 public:
  virtual ~AnyProber() = default;
  virtual unsigned width() const = 0;
  // Whether what is found are the numbers of rows in the identity table, not fingerprints.
  virtual bool finds_rows() const = 0;
  virtual bool is_brief() const = 0;
  virtual Status search_one(const uint64_t* row, const ProbeOptions& options, Sink* sink, ProbeCounters* counters, Fault* fault) const = 0;
  virtual const std::string& path_of(const Fault& fault) const = 0;
  // Tells the logger which filters turned out to be damaged.
  virtual void tell_damage() const {}
};

// The tables of a design with, for one query radius, what to look up in each.
class Prober : public AnyProber {
 public:
  std::vector<const Table*> tables;
  std::vector<TableProbe> probes;
  mutable std::atomic<uint64_t> fetches{0}, blocks{0};  // requests for pages ahead, and blocks read, of all calls

  void add(nb::object table, unsigned prefix_bits, unsigned flips, Words masks, nb::object filter);
  // (lims, fingerprints, distances, blocks read, candidates), or None when there are more than most matches.
  nb::object probe(Rows queries, unsigned radius, std::optional<uint64_t> most, const std::string& order, bool fetch, unsigned threads,
                   const Stop* stop) const;

  // Of no tables, any will do.
  unsigned width() const override { return tables.empty() ? 64 : tables[0]->width; }
  unsigned words() const { return words_of(width()); }
  bool finds_rows() const override { return false; }
  bool is_brief() const override;
  Status search_one(const uint64_t* row, const ProbeOptions& options, Sink* sink, ProbeCounters* counters, Fault* fault) const override {
    return search({row, 1}, options, 1, sink, counters, fault);
  }
  const std::string& path_of(const Fault& fault) const override { return tables[fault.table]->path; }
  void tell_damage() const override {
    for (Filter* filter : filters_) filter->tell_damage();
  }

 private:
  // Whether a look-up reads its whole table anyway.
  bool scans() const { return probes.size() == 1 && probes[0].prefix_bits == 0 && probes[0].variant_count == 1; }
  Status search(const Queries& queries, ProbeOptions options, unsigned threads, Sink* sink, ProbeCounters* counters, Fault* fault) const;
  Status scan(const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters* counters, Fault* fault) const;

  std::vector<nb::object> owners_;
  std::vector<Filter*> filters_;
  std::vector<std::vector<uint64_t>> variants_;
  mutable PageWatch pages_;
};

}  // namespace fpstore
