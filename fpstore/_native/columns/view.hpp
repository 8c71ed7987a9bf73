// Column tables and row files in memory.
#pragma once
#include "columns/column_header.hpp"
#include "format/permutation.hpp"

namespace fpstore {

// A parsed and mapped table or row file.
struct ColumnView {
  const uint8_t* directory;
  const uint8_t* tags;  // of a row file: the rows
  const uint8_t* rest;
  uint64_t directory_at;  // where they are in the file
  uint64_t tags_at;
  uint64_t rest_at;
  uint64_t count;
  unsigned words;  // of a fingerprint
  unsigned bucket_bits;
  unsigned rest_bytes;
  unsigned rest_shift;  // the lowest bit of the rest in a key
  uint64_t rest_mask;
  uint16_t tag_mask;  // the bits of a tag that a probe compares
  bool rows;
  Permutation forward;  // from a fingerprint to its key; of references, to bucket and tag
  Permutation inverse;  // of copies: from a key to its fingerprint
  Pages pages;
};

// The view of a file that a header describes. seen has seen_words() words, zero at first.
void make_view(const ColumnHeader& header, const uint8_t* data, uint64_t* seen, ColumnView* view);

static inline uint64_t bucket_count(const ColumnView& t) { return uint64_t{1} << t.bucket_bits; }

// The entries [start, end) of a bucket, read once each: whatever the file says they lie in the
// table.
static inline Status read_bucket(const ColumnView& t, uint64_t bucket, uint64_t* start,
                                 uint64_t* end, Fault* fault) {
  FPSTORE_TRY(verify(t.pages, t.directory_at + 4 * bucket, 8, fault));
  const uint64_t both = read_once(load64(t.directory + 4 * bucket));
  *start = both & UINT32_MAX;
  *end = both >> 32;
  if (FPSTORE_LIKELY(*start <= *end && *end <= t.count)) return Status::ok;
  *fault = Fault{Status::bad_directory, UINT64_MAX, t.count, *end};
  return fault->status;
}

static inline uint64_t read_tag(const ColumnView& t, uint64_t place) {
  return read_once(load16(t.tags + 2 * place));
}

// Eight bytes can be read at each place: there is room behind the section.
static inline uint64_t read_rest(const ColumnView& t, uint64_t place) {
  return read_once(load64(t.rest + t.rest_bytes * place)) & t.rest_mask;
}

// The part of a key that is above its rest.
static inline uint64_t head_of(const ColumnView& t, uint64_t bucket, uint64_t tag) {
  return bucket << (64 - t.bucket_bits) | tag << (64 - kTagBits - t.bucket_bits);
}

}  // namespace fpstore
