// What the blocks of every codec share: where they are, their checksums, the words behind the
// leading ones.
#pragma once
#include "format/block_sum.hpp"
#include "format/common.hpp"
#include "format/table_view.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kWays = 4;  // blocks opened side by side: one alone would wait for its own loads

// A block to be opened, and what its header says.
template <class Head>
struct Unread {
  const TableView* table;
  uint64_t block;
  Head head;
};

// The leading word of the key before block b.
inline uint64_t key_before(const TableView& t, uint64_t b) {
  return b ? t.keys[b - 1] : t.key_before;
}

inline uint64_t checksum_seed(const TableView& t, uint64_t b) {
  return t.seed + t.keys[b] * xxh::kP1 + key_before(t, b) * xxh::kP2 +
         (t.first_block + b) * xxh::kP3;
}

inline const uint8_t* block_at(const TableView& t, uint64_t b) {
  return t.blocks + b * t.block_bytes;
}

// Streams that need more than the bits they have.
inline Status bad_bits(uint64_t b, uint64_t room, uint64_t needed, Fault* fault) {
  *fault = Fault{Status::bad_block_bits, b, room, needed};
  return fault->status;
}

// A key that is not the last entry of its block.
inline Status bad_key(const TableView& t, uint64_t b, uint64_t last, Fault* fault) {
  *fault = Fault{Status::bad_key, b, t.keys[b], last};
  return fault->status;
}

// Checks the checksum of block b, which covers the block's number, its key and the key before.
template <class Isa>
inline Status check_sum(const TableView& t, uint64_t b, Fault* fault) {
  const uint8_t* const p = block_at(t, b);
  const uint64_t expected = read_once(load32(p)),
                 checksum = Isa::block_sum(p, t.block_bytes, checksum_seed(t, b));
  mapped_bytes_may_change();
  if (FPSTORE_LIKELY(expected == checksum)) return Status::ok;
  *fault = Fault{Status::bad_block_checksum, b, expected, checksum};
  return fault->status;
}

inline Status bad_count(uint64_t b, uint32_t most, uint32_t count, Fault* fault) {
  *fault = Fault{Status::bad_block_count, b, most, count};
  return fault->status;
}

// The words behind the leading word of entry i of a block.
template <class W, class Head>
inline const uint8_t* rest_at(const uint8_t* block, const Head& head, uint32_t i) {
  return block + head.end + i * W::kRestBytes;
}

// Whether the words behind the leading one of a block's key are those of its last entry.
template <class W, class Head>
inline bool key_is_last(const Unread<Head>& unit) {
  if constexpr (W::kWide) {
    const uint8_t* const last =
        rest_at<W>(block_at(*unit.table, unit.block), unit.head, unit.head.count - 1);
    return memcmp(last, unit.table->key_rests + unit.block * W::kRestWords, W::kRestBytes) == 0;
  } else {
    (void)unit;
    return true;
  }
}

inline void prefetch_block(const TableView& t, uint64_t b) {
  const uint8_t* p = block_at(t, b);
  const uint8_t* const end = p + t.block_bytes;
  do fetch_line(p);
  while ((p += 64) < end);
}

// Where reading stands in a block: entry index (0 is the first), its leading word, and a place in
// the bits behind it.
struct Cursor {
  uint32_t index;
  uint32_t at;
  uint64_t value;
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
