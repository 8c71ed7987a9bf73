// The tables of a design with, for one query radius, what to look up in each.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "search/table.hpp"

namespace fpstore {

// The mapped filter of a table. The mapping outlives it.
struct Filter {
  File file;
  FilterHeader header;
  std::unique_ptr<uint64_t[]> seen;
  FilterView view;
  std::atomic<bool> reported{false};

  Filter(Span<const uint8_t> data, std::string path);
};

// What finds the fingerprints near a query. Threads may share it.
class AnyProber {
 public:
  virtual ~AnyProber() = default;
  virtual unsigned width() const = 0;
  // Whether what is found are the numbers of rows in the identity table, not fingerprints.
  virtual bool finds_rows() const = 0;
  virtual Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink,
                            ProbeCounters* counters, Fault* fault) const = 0;
  // The file that a fault is in.
  virtual const File& file_of(const Fault& fault) const = 0;
  // A filter that a look-up found damaged, each once; nullptr where there is none.
  virtual const Filter* next_damaged_filter() const { return nullptr; }
};

// Look-ups in tables of blocks. Tables and filters outlive it.
class Prober : public AnyProber {
 public:
  mutable std::atomic<uint64_t> fetches{0},
      blocks{0};  // requests for pages ahead, and blocks read, of all calls

  // Looks up what has the leading bits of a query, changed by each of the masks.
  void add(const Table* table, unsigned prefix_bits, unsigned flips, Span<const uint64_t> masks,
           Filter* filter);

  // Of no tables, any will do.
  unsigned width() const override { return tables_.empty() ? 64 : tables_[0]->width; }
  unsigned words() const { return words_of(width()); }
  bool finds_rows() const override { return false; }
  Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink,
                    ProbeCounters* counters, Fault* fault) const override {
    return search(queries, options, 1, sink, counters, fault);
  }
  const File& file_of(const Fault& fault) const override { return tables_[fault.table]->file; }
  const Filter* next_damaged_filter() const override;

  Status search(const Queries& queries, ProbeOptions options, unsigned threads, Sink* sink,
                ProbeCounters* counters, Fault* fault) const;

 private:
  bool scans() const;
  Status scan(const Queries& queries, const ProbeOptions& options, Sink* sink,
              ProbeCounters* counters, Fault* fault) const;

  std::vector<const Table*> tables_;
  std::vector<TableProbe> probes_;
  std::vector<Filter*> filters_;
  std::vector<std::vector<uint64_t>> variants_;
  mutable PageWatch pages_;
};

}  // namespace fpstore
