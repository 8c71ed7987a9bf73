// Column tables and row files, and what looks things up in those of a design.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "columns/request.hpp"
#include "search/prober.hpp"

namespace fpstore {

// Blocks of entries whose ids are stored together.
static inline uint64_t id_blocks(const ColumnHeader& h) {
  return (h.count + kRowsInBlock - 1) / kRowsInBlock;
}

// What fpstore says of a status of these files.
const char* describe_column(Status status);

// A table of copies or of references, or a row file. Its ids are stored for blocks of entries,
// which are its blocks as a table.
class ColumnTable : public AnyTable {
 public:
  ColumnHeader header;
  std::unique_ptr<uint64_t[]> seen;
  ColumnView view;

  ColumnTable(Span<const uint8_t> data, std::string path);

  unsigned value_words() const override { return view.rows ? words() : 1; }
  uint64_t decode_room(const BlockRange& range, uint64_t room) const override;
  Status decode(const BlockRange& range, Decoded* to, Fault* fault) const override;
  // The rows with these numbers.
  Status read_rows(Span<const uint64_t> numbers, uint64_t* out, Fault* fault) const;
  Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
              Fault* fault) const override;
  Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
              Fault* fault) const override;
  Status read_key(uint64_t block, uint64_t* out, Fault* fault) const override;
  Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options,
                 Sink* sink, Fault* fault) const override;

 private:
  void check_searched() const;
  Entries entries_of(const BlockRange& range) const;
};

// A column table of which only the header is known.
struct ColumnParts {
  File file;
  ColumnHeader header;
  ColumnView view;

  ColumnParts(Span<const uint8_t> start, uint64_t file_bytes, std::string path);
  // The keys of the entries from number first on, from their tags and rests. The directory is that
  // of the buckets from number bucket on, and has a number more than buckets. Nothing is compared
  // with checksums here.
  Status decode(uint64_t first, Span<const uint8_t> tags, Span<const uint8_t> rests,
                uint64_t bucket, Span<const uint32_t> directory, uint64_t* out, Fault* fault) const;

 private:
  uint64_t key(uint64_t bucket, const uint8_t* tags, const uint8_t* rests, uint64_t i) const;
};

// The tables of a design in the order of their ring, with a threshold for each; without, those that
// suit each query. Tables and rows outlive it.
class ColumnProber : public AnyProber {
 public:
  ColumnProber(const std::vector<const ColumnTable*>& tables, const ColumnTable* rows,
               const std::optional<std::vector<int>>& thresholds);

  const ColumnTable* rows() const { return rows_; }
  unsigned width() const override { return tables_[0]->header.width; }
  bool finds_rows() const override { return rows_ != nullptr; }
  const File& file_of(const Fault& fault) const override {
    return fault.table < tables_.size() ? tables_[fault.table]->file : rows_->file;
  }
  Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters*,
                    Fault* fault) const override;
  Status search(const Queries& queries, unsigned radius, Stopper* stop, Sink* sink,
                ColumnCounters* counters, Fault* fault) const;

 private:
  void add(const ColumnTable* table);

  std::vector<const ColumnTable*> tables_;
  std::vector<RingTable> ring_;
  const ColumnTable* rows_;
  std::optional<std::vector<int16_t>> thresholds_;
  uint64_t reach_ = UINT64_MAX;  // the first radius that the thresholds are too small for
};

}  // namespace fpstore
