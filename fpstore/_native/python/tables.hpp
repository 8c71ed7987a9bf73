// Mapped tables and filters, and what looks things up in them.
#pragma once
#include "columns/request.hpp"
#include "format/table_view.hpp"
#include "python/module.hpp"
#include "search/request.hpp"

namespace fpstore {

inline Queries queries_of(const Rows& fingerprints, unsigned width) {
  need_words(fingerprints, words_of(width));
  need(count_of(fingerprints) <= UINT32_MAX, "at most 2^32 - 1 fingerprints a call");
  for (size_t i = 0; width < 64 && i < count_of(fingerprints); ++i)
    need(!(fingerprints.data()[i] & ~top_mask(width)), "a fingerprint has bits below its width");
  return {fingerprints.data(), count_of(fingerprints)};
}

// A table whose entries are found by their block and their rank in it: what Table and ColumnTable
// have in common.
class AnyTable {
 public:
  const std::string path;
  const Part part;  // of a fault
  unsigned width = 0;
  uint64_t block_count = 0;
  uint64_t set_digest = 0;

  AnyTable(const Bytes& data, std::string name, Part kind)
      : path(std::move(name)), part(kind), owner_(nb::cast(data)) {}
  virtual ~AnyTable() = default;
  unsigned words() const { return words_of(width); }
  void check_range(uint64_t first, uint64_t end) const {
    if (first > end || end > block_count) throw nb::index_error("block range outside the table");
  }

  // (values, entry counts, next block): decodes blocks from the first on while they fit into room
  // entries, one at least.
  virtual nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const = 0;
  // The entries at n places. This and what follows needs no GIL.
  virtual Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
                      Fault* fault) const = 0;
  virtual Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
                      Fault* fault) const = 0;
  // The key of a block: its last entry.
  virtual Status read_key(uint64_t block, uint64_t* out, Fault* fault) const = 0;
  virtual Status compare(const BlockRange& range, const Queries& queries,
                         const ScanOptions& options, Sink* sink, Fault* fault) const = 0;

 private:
  nb::object owner_;  // keeps the mapping alive
};

class Table : public AnyTable {
 public:
  TableHeader header;
  TableView view;

  Table(Bytes data, std::string name);
  const Kernels& kernels() const { return fpstore::kernels(width); }
  nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const override;
  Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
              Fault* fault) const override;
  Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
              Fault* fault) const override {
    return kernels().locate(view, fingerprints, blocks, ranks, stop, fault);
  }
  Status read_key(uint64_t block, uint64_t* out, Fault*) const override {
    out[0] = view.keys[block];
    std::copy_n(view.key_rests + block * (words() - 1), words() - 1, out + 1);
    return Status::ok;
  }
  Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options,
                 Sink* sink, Fault* fault) const override {
    return kernels().scan(view, range, queries, options, sink, fault);
  }
};

// The tables of a design, as a single probe asks them. Only tell_damage() needs the GIL.
class AnyProber {
 public:
  virtual ~AnyProber() = default;
  virtual unsigned width() const = 0;
  // Whether what is found are the numbers of rows in the identity table, not fingerprints.
  virtual bool finds_rows() const = 0;
  virtual Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink,
                            ProbeCounters* counters, Fault* fault) const = 0;
  virtual const std::string& path_of(const Fault& fault) const = 0;
  // Tells the logger which filters turned out to be damaged.
  virtual void tell_damage() const {}
};

}  // namespace fpstore
