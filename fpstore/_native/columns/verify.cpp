#include "columns/verify.hpp"

#include "columns/read.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr unsigned kAtOnce = 256;  // entries

Status fail(Fault* fault, Status status, uint64_t place, uint64_t expected, uint64_t got) {
  *fault = Fault{status, place, expected, got};
  return status;
}

Status verify_padding(const ColumnView& t, uint64_t from, uint64_t to, Fault* fault) {
  for (; from < to; ++from)
    if (t.pages.data[from]) return fail(fault, Status::bad_padding, UINT64_MAX, 0, from);
  return Status::ok;
}

Status verify_directory(const ColumnView& t, Fault* fault) {
  uint64_t start = 0, end = 0, before = 0;
  for (uint64_t bucket = 0; bucket < bucket_count(t); ++bucket) {
    const Status status = read_bucket(t, bucket, &start, &end, fault);
    if (status != Status::ok) return status;
    if (start != before) return fail(fault, Status::bad_directory, UINT64_MAX, before, start);
    before = end;
  }
  return end == t.count ? Status::ok : fail(fault, Status::bad_directory, UINT64_MAX, t.count, end);
}

// The entries of a part in order, and each in its bucket: keys of a table have the bucket from the directory.
struct Order {
  const ColumnView& t;
  const uint64_t low_mask;  // bits of a key, or of the last word of a row, that must be 0
  uint64_t last[kMaxWords];
  uint64_t bucket = 0, bucket_end = 0;
  bool any = false;

  Status add(const uint64_t* words, uint64_t place, Fault* fault) {
    const unsigned n = t.rows ? t.words : 1;
    bool ascends = !any;
    for (unsigned w = 0; w < n && !ascends; ++w) {
      if (words[w] < last[w]) break;
      ascends = words[w] > last[w];
    }
    if (!ascends) return fail(fault, Status::bad_block_order, place, last[0], words[0]);
    if (words[n - 1] & low_mask) return fail(fault, Status::bad_padding, place, 0, words[n - 1]);
    memcpy(last, words, 8 * n);
    any = true;
    if (!t.rows) return Status::ok;
    uint64_t start = 0, end = 0;
    const Status status = read_bucket(t, words[0] >> (64 - t.bucket_bits), &start, &end, fault);
    if (status != Status::ok) return status;
    if (place < start || place >= end) return fail(fault, Status::bad_directory, place, start, end);
    return Status::ok;
  }
};

// Bits above the rest in its bytes.
Status verify_rest(const ColumnView& t, uint64_t place, Fault* fault) {
  const uint64_t whole = load64(t.rest + t.rest_bytes * place) & ((uint64_t{1} << 8 * t.rest_bytes) - 1);
  return whole & ~t.rest_mask ? fail(fault, Status::bad_padding, place, t.rest_mask, whole) : Status::ok;
}

// The row that a reference leads to.
Status verify_reference(const ColumnView& t, const ColumnView& rows, uint64_t key, uint64_t place, Fault* fault) {
  const uint64_t row = key >> t.rest_shift & t.rest_mask;
  if (row >= rows.count) return fail(fault, Status::bad_place, place, rows.count, row);
  uint64_t words[kMaxWords];
  const Status status = read_entries(rows, {row, row + 1}, words, fault);
  if (status != Status::ok) {
    fault->table = 1;
    return status;
  }
  const uint64_t head = gather(t.forward, words);
  const uint64_t stored = key & top_mask(t.bucket_bits + kTagBits);
  return head == stored ? Status::ok : fail(fault, Status::bad_key, place, stored, head);
}

}  // namespace

uint64_t words_digest(const uint64_t* words, size_t n, unsigned words_each) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i)
    sum += words_each == 1 ? xxh64_row(words[i]) : xxh64(reinterpret_cast<const uint8_t*>(words + words_each * i), 8 * words_each, 0);
  return sum;
}

Status verify_columns(const ColumnHeader& h, const ColumnView& t, const ColumnView* rows, Stopper* stop, Fault* fault) {
  *fault = Fault{};
  const uint64_t pages = page_count(h);
  for (uint64_t page = 0; page < pages; ++page) {
    if (should_stop(stop, kBlockWork)) return column_interrupted(fault);
    const Status status = compare_pages(t.pages, page, page, fault);
    if (status != Status::ok) return status;
  }
  Status status = verify_directory(t, fault);
  const uint64_t entry_bytes = t.rows ? 8 * t.words : 2;
  if (status == Status::ok) status = verify_padding(t, t.directory_at + 4 * (bucket_count(t) + 1), t.tags_at, fault);
  if (status == Status::ok) status = verify_padding(t, t.tags_at + entry_bytes * t.count, t.rest_at, fault);
  if (status == Status::ok) status = verify_padding(t, t.rest_at + t.rest_bytes * t.count, h.checksums_offset, fault);
  const bool copies = h.kind == ColumnKind::copies;
  Order order{t, copies && h.width < 64 ? ~top_mask(h.width) : 0, {}};
  uint64_t digest = 0, words[kAtOnce * kMaxWords];
  for (uint64_t first = 0; first < t.count && status == Status::ok; first += kAtOnce) {
    const Entries part{first, t.count - first < kAtOnce ? t.count : first + kAtOnce};
    if (should_stop(stop, 2 * kAtOnce)) return column_interrupted(fault);
    status = read_entries(t, part, words, fault);
    const unsigned each = t.rows ? t.words : 1;
    for (uint64_t place = part.first; place < part.end && status == Status::ok; ++place) {
      const uint64_t* const entry = words + each * (place - part.first);
      status = order.add(entry, place, fault);
      if (status == Status::ok && t.rest_bytes) status = verify_rest(t, place, fault);
      if (status == Status::ok && rows) status = verify_reference(t, *rows, *entry, place, fault);
      if (copies) digest += xxh64_row(gather(t.inverse, entry));
      if (t.rows) digest += words_digest(entry, 1, each);
    }
  }
  if (status != Status::ok) return status;
  if ((copies || t.rows) && digest != h.set_digest) return fail(fault, Status::bad_digest, UINT64_MAX, h.set_digest, digest);
  return Status::ok;
}

}  // namespace fpstore
