// Filter files: which prefixes the entries of a table have, as a Bloom filter in blocks of a word
// (docs/format.md, "Filter file").
//
// Putze, Sanders, Singler, Cache-, Hash- and Space-Efficient Bloom Filters, WEA 2007, have blocks
// that a hash chooses. Here the leading bits of a prefix choose a bucket, which has as many words
// as its prefixes need, and the bits behind them a word of the bucket. So a filter is written in
// order with its table, no part of it is fuller than another, and look-ups of a query with bits
// flipped share lines of the cache.
#pragma once
#include "format/pages.hpp"
#include "format/row.hpp"

namespace fpstore {

constexpr unsigned kMaxFilterBits = 40;  // of a prefix
constexpr unsigned kMaxFilterBucketBits = 28;
constexpr unsigned kMaxFilterRestBits = 32;  // behind the bits of the bucket
constexpr unsigned kMaxBitsPerPrefix = 64;

struct FilterHeader {
  uint32_t version = kFormatVersion;
  uint32_t flags = 0;
  uint16_t width = 64;
  uint16_t table = 0;
  uint16_t table_count = 1;
  uint16_t prefix_bits = 0;      // of an entry, that the filter knows
  uint16_t bucket_bits = 0;      // of these, that choose a bucket
  uint16_t bits_per_prefix = 0;  // by which the words of a bucket are counted
  uint32_t reserved = 0;
  uint64_t fingerprint_count = 0;
  uint64_t word_count = 0;
  uint64_t starts_offset = 0;
  uint64_t checksums_offset = 0;
  uint64_t file_bytes = 0;
  uint64_t set_digest = 0;
  uint8_t permutation[kMaxWidth] = {};
};

// Fills header from the first kHeaderBytes of a file of file_bytes bytes, and checks every field:
// after Status::ok all sections lie inside the file.
Status parse_filter_header(const uint8_t* data, uint64_t file_bytes, FilterHeader* header,
                           Fault* fault);

// Computes offsets, size and checksum from the other fields and writes kHeaderBytes. Fails where a
// field is out of range.
Status write_filter_header(FilterHeader* header, uint8_t* out, Fault* fault);

// What the page checksums start from: it follows from the fields that are known before the first
// entry.
uint64_t filter_seed(const FilterHeader& header);

// The share of look-ups that find nothing but pass, in a filter of a set whose prefixes are
// uniform.
double passing_share(const FilterHeader& header);

// A mapped filter. Threads share it.
struct FilterView {
  const uint8_t* bits;          // the words
  const uint8_t* starts;        // the first word of each bucket, and the end of the last
  uint64_t bits_at, starts_at;  // where they are in the file, behind the header
  uint64_t word_count;
  unsigned prefix_bits, rest_bits;
  double passing;  // the share of look-ups that are expected to pass
  Pages pages;
  mutable bool damaged;  // every look-up passes from then on
};

// seen has seen_words() words, zero at first.
void make_view(const FilterHeader& header, const uint8_t* data, uint64_t* seen, FilterView* view);

// The bits that a prefix sets in its word: three or, where places are equal, fewer.
static inline uint64_t filter_mask(uint64_t prefix) {
  const uint64_t hash = prefix * 0x9E3779B97F4A7C15;
  return uint64_t{1} << (hash >> 58) | uint64_t{1} << (hash >> 52 & 63) |
         uint64_t{1} << (hash >> 46 & 63);
}

// Of a bucket's words, from start to end, the one that a prefix is in: its bits behind those of the
// bucket are stretched over them.
static inline uint64_t word_of(uint64_t start, uint64_t end, uint64_t rest, unsigned rest_bits) {
  return start + ((rest * (end - start)) >> rest_bits);
}

static inline bool is_damaged(const FilterView& f) {
  return __atomic_load_n(&f.damaged, __ATOMIC_RELAXED);
}
static inline void note_damage(const FilterView& f) {
  __atomic_store_n(&f.damaged, true, __ATOMIC_RELAXED);
}

// The words of a bucket, read once; false where they are not in the file.
static inline bool read_bucket(const FilterView& f, uint64_t bucket, uint64_t* start,
                               uint64_t* end) {
  const uint64_t both = read_once(load64(f.starts + 4 * bucket));
  *start = both & UINT32_MAX;
  *end = both >> 32;
  return *start <= *end && *end <= f.word_count;
}

static inline bool has_prefix(const FilterView& f, uint64_t word, uint64_t prefix) {
  const uint64_t mask = filter_mask(prefix);
  return (read_once(load64(f.bits + 8 * word)) & mask) == mask;
}

constexpr uint64_t kAnyWord = UINT64_MAX;     // a look-up passes
constexpr uint64_t kNoWord = UINT64_MAX - 1;  // its bucket is empty

// The word to look at for the prefix that a target begins with; the page that tells its bucket has
// been verified.
static inline uint64_t find_verified_word(const FilterView& f, uint64_t target) {
  const uint64_t prefix = target >> (64 - f.prefix_bits);
  uint64_t start, end;
  if (FPSTORE_UNLIKELY(!read_bucket(f, prefix >> f.rest_bits, &start, &end)))
    return note_damage(f), kAnyWord;
  return start == end
             ? kNoWord
             : word_of(start, end, prefix & ((uint64_t{1} << f.rest_bits) - 1), f.rest_bits);
}

// Verifies the pages of the bytes [at, at + n). Damage is noted, and the answer is false.
bool compare_filter_pages(const FilterView& f, uint64_t at, uint64_t n);

// The same; pages that have been verified cost two bits. Nothing is stored then, so that a
// processor can wait for many words at a time.
static inline bool verified(const FilterView& f, uint64_t at, uint64_t n) {
  return FPSTORE_LIKELY(pages_seen(f.pages, at, n)) || compare_filter_pages(f, at, n);
}

// The same, after verifying the page. A damaged one lets all look-ups pass.
static inline uint64_t find_word(const FilterView& f, uint64_t target) {
  if (FPSTORE_UNLIKELY(is_damaged(f))) return kAnyWord;
  const uint64_t bucket = target >> (64 - f.prefix_bits) >> f.rest_bits;
  return verified(f, f.starts_at + 4 * bucket, 8) ? find_verified_word(f, target) : kAnyWord;
}

static inline void fetch_word(const FilterView& f, uint64_t word) {
  if (word < kNoWord) fetch_line(f.bits + 8 * word);
}

// Whether an entry with the prefix may be in the table, as its word tells, whose page has been
// verified.
static inline bool verified_holds(const FilterView& f, uint64_t target, uint64_t word) {
  if (FPSTORE_UNLIKELY(word >= kNoWord)) return word == kAnyWord;
  return has_prefix(f, word, target >> (64 - f.prefix_bits));
}

// The same, after verifying the page.
static inline bool may_hold(const FilterView& f, uint64_t target, uint64_t word) {
  if (FPSTORE_LIKELY(word < kNoWord) && !verified(f, f.bits_at + 8 * word, 8)) return true;
  return verified_holds(f, target, word);
}

// Makes sure that the words for all targets from the first to the last are right. False where some
// are not, or where they take more pages than it is worth to read.
static inline bool verify_range(const FilterView& f, uint64_t first, uint64_t last,
                                uint64_t most_pages) {
  if (is_damaged(f)) return false;
  const uint64_t low = first >> (64 - f.prefix_bits) >> f.rest_bits,
                 high = last >> (64 - f.prefix_bits) >> f.rest_bits;
  if (high - low > most_pages * (kPageBytes / 4)) return false;
  if (!verified(f, f.starts_at + 4 * low, 4 * (high - low) + 8)) return false;
  uint64_t start, end, between;
  if (!read_bucket(f, low, &start, &between) || !read_bucket(f, high, &between, &end) ||
      start > end)
    return false;
  if (end - start > most_pages * (kPageBytes / 8)) return false;
  return start == end || verified(f, f.bits_at + 8 * start, 8 * (end - start));
}

}  // namespace fpstore
