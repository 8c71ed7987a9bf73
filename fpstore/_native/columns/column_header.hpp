// The header of a column table or a row file: the one place of the kernel that knows its bytes
// (docs/format.md, "Column table").
#pragma once
#include "format/pages.hpp"
#include "format/row.hpp"

namespace fpstore {

constexpr unsigned kSectionRoom = 64;  // zeros behind each section, which vectors may read
constexpr unsigned kMinBucketBits = 8;
constexpr unsigned kMaxBucketBits = 19;
constexpr unsigned kTagBits = 16;       // as stored; a probe may compare fewer of them
constexpr unsigned kRowsInBlock = 128;  // entries whose ids are stored together

// The tag of a permuted fingerprint, by its leading word: the bits behind the bucket.
static inline uint16_t tag_of(uint64_t word, unsigned bucket_bits) {
  return static_cast<uint16_t>(word << bucket_bits >> (64 - kTagBits));
}

enum class ColumnKind : uint16_t { copies = 0, references = 1, rows = 2 };

struct ColumnHeader {
  uint32_t version = kFormatVersion;
  uint32_t flags = 0;
  uint16_t width = 64;
  ColumnKind kind = ColumnKind::copies;
  uint16_t table = 0;
  uint16_t table_count = 1;
  uint16_t bucket_bits = 16;
  uint16_t tag_bits = kTagBits;  // leading bits of a tag that a probe compares
  uint16_t allowance =
      0;  // one more than the bits of the bucket that may differ; 0: the table is not looked up
  uint16_t rest_bits = 0;
  uint64_t count = 0;
  uint64_t directory_offset = kHeaderBytes;
  uint64_t tags_offset = 0;  // of a row file: of the rows
  uint64_t rest_offset = 0;
  uint64_t checksums_offset = 0;
  uint64_t file_bytes = 0;
  uint64_t set_digest = 0;
  uint8_t permutation[kMaxWidth] =
      {};  // the first width of them: permutation[i] is the source bit of bit i, 0 = MSB
  uint64_t checksum = 0;  // of the header, and the seed of the page checksums
};

static inline unsigned rest_bytes(const ColumnHeader& h) { return (h.rest_bits + 7u) / 8; }
static inline uint64_t page_count(const ColumnHeader& h) {
  return (h.checksums_offset - kHeaderBytes + kPageBytes - 1) / kPageBytes;
}

// Bits of the rest of each entry, which follow from the kind, the width, the bits of a bucket and
// the count.
unsigned rest_bits_for(const ColumnHeader& header);

// Fills header from the first kHeaderBytes of a file of file_bytes bytes, and checks every field:
// after Status::ok all sections lie inside the file, do not overlap, and have kSectionRoom bytes
// behind them.
Status parse_column_header(const uint8_t* data, uint64_t file_bytes, ColumnHeader* header,
                           Fault* fault);

// Computes rest_bits, offsets, size and checksum from the other fields and writes kHeaderBytes.
// Fails where a field is out of range.
Status write_column_header(ColumnHeader* header, uint8_t* out, Fault* fault);

// From sorted keys, or rows, to the sections of a file. What is carried from feed to feed: the last
// key or row.
struct ColumnFeed {
  uint64_t last[4];
  bool any = false;
};

// Counts the keys of each bucket, and cuts them into tags and rests. Returns the place of the first
// key that does not ascend or has bits below its rest, or n.
size_t cut_keys(const ColumnHeader& header, const uint64_t* keys, size_t n, ColumnFeed* feed,
                uint32_t* bucket_counts, uint8_t* tags, uint8_t* rests);

// Counts the rows of each bucket; returns the first that does not ascend, or n.
size_t count_rows(const ColumnHeader& header, const uint64_t* rows, size_t n, ColumnFeed* feed,
                  uint32_t* bucket_counts);

}  // namespace fpstore
