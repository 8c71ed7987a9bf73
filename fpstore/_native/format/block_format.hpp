// What is in a block and where, checked.
#pragma once
#include "format/common.hpp"
#include "format/table_view.hpp"
#include "format/xxh64.hpp"

namespace fpstore {
namespace {

// What a block's header says, checked: entry count, where the tails start, and where the bits end: there stand the words behind the
// leading ones, of all entries.
struct BlockHead {
  uint64_t first;
  uint32_t count;
  uint32_t tail_at;  // bit position inside the block
  uint32_t end;      // byte position
};

// What a block of this size can hold: an entry behind the first takes at least one bit.
inline uint32_t most_entries(uint32_t block_bytes) { return (block_bytes - kBlockHeaderBytes) * 8 + 1; }
template <class W>
inline uint32_t most_entries_of(uint32_t block_bytes) {
  if constexpr (W::kWide) return (block_bytes - kBlockHeaderBytes) / W::kRestBytes;
  else return most_entries(block_bytes);
}

inline uint64_t checksum_seed(const TableView& t, uint64_t b) {
  const uint64_t previous = b ? t.keys[b - 1] : 0;
  return t.seed + t.keys[b] * xxh::kP1 + previous * xxh::kP2 + b * xxh::kP3;
}

inline const uint8_t* block_at(const TableView& t, uint64_t b) { return t.blocks + b * t.block_bytes; }

inline Status no_memory(uint64_t b, Fault* fault) {
  *fault = Fault{Status::out_of_memory, b, 0, 0};
  return fault->status;
}

inline Status interrupted(Fault* fault) {
  *fault = Fault{Status::interrupted};
  return fault->status;
}

inline Status bad_bits(uint64_t b, const BlockHead& head, Fault* fault) {
  *fault = Fault{Status::bad_block_bits, b, head.end * 8, head.tail_at};
  return fault->status;
}

// Takes the checksum (which covers the block's index, its key and the key before) and the lengths of block b.
template <class W>
inline Status read_head(const TableView& t, uint64_t b, uint64_t checksum, BlockHead* head, Fault* fault) {
  const uint8_t* p = block_at(t, b);
  const uint64_t expected = read_once(load64(p));
  if (__builtin_expect(expected != checksum, 0)) {
    *fault = Fault{Status::bad_block_checksum, b, expected, checksum};
    return fault->status;
  }
  // Read here and nowhere else: the file may have changed since the checksum was made, and may change again. Whatever its other
  // bytes become, what is decoded from them stays within these lengths.
  head->first = read_once(load64(p + 8));
  const uint64_t lengths = read_once(load32(p + 16));
  head->count = lengths & 0xFFFF;
  head->tail_at = kBlockHeaderBytes * 8 + static_cast<uint32_t>(lengths >> 16);
  if (__builtin_expect(head->count == 0 || head->count > most_entries_of<W>(t.block_bytes), 0)) {
    *fault = Fault{Status::bad_block_count, b, most_entries_of<W>(t.block_bytes), head->count};
    return fault->status;
  }
  head->end = t.block_bytes - head->count * W::kRestBytes;
  if (__builtin_expect(head->tail_at > head->end * 8, 0)) return bad_bits(b, *head, fault);
  // Behind the last bit of a narrow fingerprint there is nothing.
  if (W::kLast < 63 && __builtin_expect((head->first & ~top_mask(W::kLast + 1)) != 0, 0)) return bad_bits(b, *head, fault);
  return Status::ok;
}

template <class W>
inline Status open_block(const TableView& t, uint64_t b, BlockHead* head, Fault* fault) {
  return read_head<W>(t, b, xxh64(block_at(t, b) + 8, t.block_bytes - 8, checksum_seed(t, b)), head, fault);
}

// The words behind the leading word of entry i of a block.
template <class W>
inline const uint8_t* rest_at(const uint8_t* block, const BlockHead& head, uint32_t i) {
  return block + head.end + i * W::kRestBytes;
}

// Eight bytes from any bit on hold 57 bits: the set bit of an entry and a tail of 56. Only entries that differ before this bit from
// the one before have longer tails: few of a large set.
constexpr unsigned kShortTailFrom = 7;
template <class W>
constexpr bool kHasLongTails = W::kLast == 63;

// Bits of the tail of an entry with first differing bit h. One that differs behind its leading word only has none.
template <class W>
inline uint32_t tail_length(unsigned h) {
  if constexpr (W::kWide) return h < 64 ? 63 - h : 0;
  else return W::kLast - h;
}

// x shifted by the h of an entry.
template <class W>
inline uint64_t shifted(uint64_t x, unsigned h) {
  if constexpr (W::kWide) return x >> (h >> 1) >> ((h + 1) >> 1);  // h may be 64
  else return x >> h;
}

// The tail of an entry with first differing bit h, at bit position at: the bit at h set and the bits after it.
template <class W>
inline uint64_t tail_value(const uint8_t* p, uint32_t at, unsigned h) {
  // From one bit earlier, where the set bit will be.
  const uint8_t* q = p + ((at - 1) >> 3);
  uint64_t w = load64be(q) << ((at - 1) & 7);
  if (kHasLongTails<W> && __builtin_expect(h < kShortTailFrom, 0)) w |= (static_cast<uint64_t>(q[8]) << ((at - 1) & 7)) >> 8;
  return shifted<W>(w | uint64_t{1} << 63, h) & top_mask(W::kLast + 1);
}

// The bits of x before position h.
template <class W>
inline uint64_t keep_before(uint64_t x, unsigned h) {
  return x & ~shifted<W>(~uint64_t{0}, h);
}

// The tails of a block: they start at bit position at of the block at p, of which limit bytes can be read.
struct Tails {
  const uint8_t* p;
  uint32_t limit;
  uint32_t at;
};

inline void prefetch_block(const TableView& t, uint64_t b) {
  const uint8_t* p = t.blocks + b * t.block_bytes;
  for (uint32_t i = 0; i < t.block_bytes; i += 64) __builtin_prefetch(p + i);
}

}  // namespace
}  // namespace fpstore
