#include "columns/column_table.hpp"

#include <algorithm>

namespace fpstore {
namespace {

bool of_one_set(const ColumnHeader& a, const ColumnHeader& b) {
  return a.width == b.width && a.count == b.count && a.set_digest == b.set_digest;
}

}  // namespace

const char* describe_column(Status status) {
  switch (status) {
    case Status::bad_magic:
      return "not a column table (magic bytes differ)";
    case Status::bad_permutation:
      return "header permutation is not a permutation of its bits";
    case Status::bad_block_checksum:
      return "page checksum differs";
    case Status::bad_block_order:
      return "entries out of order";
    case Status::bad_key:
      return "a reference leads to a row of another bucket or tag";
    case Status::bad_directory:
      return "directory does not match the entries";
    case Status::bad_place:
      return "a reference leads to no row";
    default:
      return describe(status);
  }
}

ColumnTable::ColumnTable(Span<const uint8_t> data, std::string path)
    : AnyTable({std::move(path), Part::column}) {
  Fault fault;
  check(parse_column_header(data.data, data.size, &header, &fault), fault, file);
  width = header.width;
  block_count = id_blocks(header);
  set_digest = header.set_digest;
  seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
  make_view(header, data.data, seen.get(), &view);
}

uint64_t ColumnTable::decode_room(const BlockRange& range, uint64_t room) const {
  return std::min(range.end - range.begin, std::max<uint64_t>(room / kRowsInBlock, 1)) *
         kRowsInBlock;
}

Status ColumnTable::decode(const BlockRange& range, Decoded* to, Fault* fault) const {
  const uint64_t blocks = std::min(range.end - range.begin, to->room / kRowsInBlock);
  const Entries entries = entries_of({range.begin, range.begin + blocks});
  FPSTORE_TRY(read_entries(view, entries, to->entries, fault));
  for (uint64_t b = 0; b < blocks; ++b)
    to->counts[b] = static_cast<uint32_t>(
        std::min<uint64_t>(header.count - (range.begin + b) * kRowsInBlock, kRowsInBlock));
  to->blocks = blocks;
  to->written = entries.end - entries.first;
  return Status::ok;
}

Status ColumnTable::read_rows(Span<const uint64_t> numbers, uint64_t* out, Fault* fault) const {
  for (size_t i = 0; i < numbers.size; ++i)
    FPSTORE_TRY(read_entries(view, {numbers[i], numbers[i] + 1}, out + words() * i, fault));
  return Status::ok;
}

Status ColumnTable::read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
                         Fault* fault) const {
  check_searched();
  for (size_t i = 0; i < n; ++i) {
    const uint64_t block = blocks[i], place = block * kRowsInBlock + ranks[i];
    if (block >= block_count)
      return (*fault = Fault{Status::bad_place, block, block_count, block}).status;
    if (ranks[i] >= kRowsInBlock || place >= header.count)
      return (*fault = Fault{Status::bad_place, block, kRowsInBlock, ranks[i]}).status;
    FPSTORE_TRY(read_entries(view, {place, place + 1}, out + words() * i, fault));
  }
  return Status::ok;
}

Status ColumnTable::find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks,
                         Stopper* stop, Fault* fault) const {
  check_searched();
  FPSTORE_TRY(locate_entries(view, fingerprints, blocks, stop, fault));
  for (size_t i = 0; i < fingerprints.count; ++i) {
    const uint64_t place = blocks[i];
    ranks[i] = place == UINT64_MAX ? 0 : static_cast<uint32_t>(place % kRowsInBlock);
    if (place != UINT64_MAX) blocks[i] = place / kRowsInBlock;
  }
  return Status::ok;
}

Status ColumnTable::read_key(uint64_t block, uint64_t* out, Fault* fault) const {
  check_searched();
  const uint64_t end = entries_of({block, block + 1}).end;
  return read_entries(view, {end - 1, end}, out, fault);
}

Status ColumnTable::compare(const BlockRange& range, const Queries& queries,
                            const ScanOptions& options, Sink* sink, Fault* fault) const {
  check_searched();
  return scan_entries(view, entries_of(range), queries, options, sink, fault);
}

void ColumnTable::check_searched() const {
  need(header.kind != ColumnKind::references,
       "references are searched with their rows, by a ColumnProber");
}

Entries ColumnTable::entries_of(const BlockRange& range) const {
  return {std::min(range.begin * kRowsInBlock, header.count),
          std::min(range.end * kRowsInBlock, header.count)};
}

ColumnParts::ColumnParts(Span<const uint8_t> start, uint64_t file_bytes, std::string path)
    : file{std::move(path), Part::column} {
  const uint64_t known = start.size < kHeaderBytes ? start.size : file_bytes;
  Fault fault;
  check(parse_column_header(start.data, known, &header, &fault), fault, file);
  make_view(header, start.data, nullptr, &view);
}

Status ColumnParts::decode(uint64_t first, Span<const uint8_t> tags, Span<const uint8_t> rests,
                           uint64_t bucket, Span<const uint32_t> directory, uint64_t* out,
                           Fault* fault) const {
  need(!view.rows, "a row file holds rows");
  const uint64_t n = tags.size / 2, buckets = directory.size ? directory.size - 1 : 0;
  if (first > header.count || n > header.count - first || rests.size != n * view.rest_bytes ||
      bucket > bucket_count(view) || buckets > bucket_count(view) - bucket)
    throw std::out_of_range("entries or buckets outside the table");
  uint64_t i = 0;
  for (uint64_t b = 0; b < buckets && directory[b] <= first + i; ++b)
    for (const uint64_t end = directory[b + 1]; i < n && first + i < end; ++i)
      out[i] = key(bucket + b, tags.data, rests.data, i);
  if (i < n) *fault = Fault{Status::bad_directory, UINT64_MAX, header.count, first + i};
  return fault->status;
}

uint64_t ColumnParts::key(uint64_t bucket, const uint8_t* tags, const uint8_t* rests,
                          uint64_t i) const {
  uint64_t rest = 0;
  for (unsigned b = 0; b < view.rest_bytes; ++b)
    rest |= uint64_t{rests[view.rest_bytes * i + b]} << 8 * b;
  return head_of(view, bucket, load16(tags + 2 * i)) | (rest & view.rest_mask) << view.rest_shift;
}

ColumnProber::ColumnProber(const std::vector<const ColumnTable*>& tables, const ColumnTable* rows,
                           const std::optional<std::vector<int>>& thresholds)
    : rows_(rows) {
  need(tables.size() >= 1 && tables.size() <= kMaxRing, "a ring has 1 to 64 tables");
  for (const ColumnTable* table : tables) add(table);
  const ColumnHeader& h = tables_[0]->header;
  need((h.kind == ColumnKind::references) == (rows != nullptr) &&
           (!rows || rows->header.kind == ColumnKind::rows),
       "tables of references need a row file, and only they");
  need(!rows || of_one_set(rows->header, h), "the row file is of another set");
  // What a probe's exactness rests on; see Ring.
  uint64_t taken[kMaxWords] = {};
  for (size_t i = 0; i < ring_.size(); ++i)
    for (unsigned w = 0; w < kMaxWords; ++w) {
      const uint64_t block = ring_[(i + 1) % ring_.size()].bucket_mask[w] | ring_[i].tag_mask[w];
      need(!(taken[w] & block), "the blocks of the ring share a bit");
      taken[w] |= block;
    }
  if (!thresholds) return;
  need(thresholds->size() == ring_.size(), "a threshold for each table");
  thresholds_.emplace();
  reach_ = 0;
  for (const int t : *thresholds) {
    need(t >= -1 && t <= static_cast<int>(kMaxWidth), "a threshold is -1 to 256");
    thresholds_->push_back(static_cast<int16_t>(t));
    reach_ += static_cast<unsigned>(t + 1);
  }
}

void ColumnProber::add(const ColumnTable* table) {
  const ColumnHeader& h = table->header;
  need(h.kind != ColumnKind::rows, "a row file is not a table");
  tables_.push_back(table);
  const ColumnHeader& first = tables_[0]->header;
  need(h.kind == first.kind && of_one_set(h, first), "the tables are of different sets");
  RingTable r{&table->view, {}, {}};
  for (unsigned i = 0; i < h.bucket_bits + h.tag_bits; ++i) {
    const unsigned source = h.permutation[i];
    uint64_t* const mask = i < h.bucket_bits ? r.bucket_mask : r.tag_mask;
    mask[source / 64] |= uint64_t{1} << (63 - source % 64);
  }
  ring_.push_back(r);
}

Status ColumnProber::search_few(const Queries& queries, const ProbeOptions& options, Sink* sink,
                                ProbeCounters*, Fault* fault) const {
  ColumnCounters counters;
  return search(queries, options.radius, options.stop, sink, &counters, fault);
}

Status ColumnProber::search(const Queries& queries, unsigned radius, Stopper* stop, Sink* sink,
                            ColumnCounters* counters, Fault* fault) const {
  radius = std::min(radius, width());
  need(radius < reach_, "the thresholds, one added to each, must add up to more than the radius");
  std::vector<int16_t> chosen;  // for a query
  if (!thresholds_) chosen.resize(ring_.size());
  return column_kernels().probe[words_of(width()) / 2](
      {ring_.data(), static_cast<unsigned>(ring_.size()), rows_ ? &rows_->view : nullptr}, queries,
      {radius, thresholds_ ? thresholds_->data() : chosen.data(), !thresholds_, stop}, sink,
      counters, fault);
}

}  // namespace fpstore
