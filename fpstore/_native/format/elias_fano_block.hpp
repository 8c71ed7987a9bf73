// Blocks of the Elias-Fano codec (docs/format.md, "Elias-Fano block"; Elias 1974, Fano 1971; Vigna,
// WSDM 2013, for searching in them): how they are read.
#pragma once
#include "format/workspace.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// What a block's header and the keys around it say, checked: both streams lie inside the block.
struct EliasFanoHead {
  uint32_t count;
  uint32_t end;    // byte position of the words behind the leading ones
  uint32_t highs;  // bits of the stream of high parts
  uint32_t low_bits;
  uint64_t high;  // of the key before: the first is not below it
};

constexpr uint32_t kHighsAt = kEliasFanoHeaderBytes * 8;  // bit position

// The bits of a leading word behind the last of a narrow fingerprint.
template <class W>
constexpr unsigned kUnused = 63 - W::kLast;

template <class W>
inline unsigned high_shift(const EliasFanoHead& head) {
  return head.low_bits + kUnused<W>;
}

// What a block of this size can hold: an entry takes at least one bit.
template <class W>
inline uint32_t most_elias_fano_entries(uint32_t block_bytes) {
  if constexpr (W::kWide)
    return (block_bytes - kEliasFanoHeaderBytes) / W::kRestBytes;
  else
    return (block_bytes - kEliasFanoHeaderBytes) * 8;
}

// Checks the checksum of block b and takes its lengths.
template <class Isa>
inline Status read_head(const TableView& t, uint64_t b, EliasFanoHead* head, Fault* fault) {
  using W = typename Isa::W;
  FPSTORE_TRY(check_sum<Isa>(t, b, fault));
  // Read here and nowhere else, as are the keys: a mapped file may change at any time.
  const uint64_t lengths = read_once(load32(block_at(t, b) + 4)), key = read_once(t.keys[b]),
                 before = read_once(key_before(t, b));
  head->count = lengths & 0xFFFF;
  head->low_bits = static_cast<uint32_t>(lengths >> 16);
  const uint32_t most = most_elias_fano_entries<W>(t.block_bytes);
  if (FPSTORE_UNLIKELY(head->count == 0 || head->count > most))
    return bad_count(b, most, head->count, fault);
  head->end = t.block_bytes - head->count * W::kRestBytes;
  const uint64_t room = uint64_t{head->end} * 8;
  if (FPSTORE_UNLIKELY(head->low_bits > W::kLast || key < before))
    return bad_bits(b, room, head->low_bits, fault);
  head->high = before >> high_shift<W>(*head);
  const uint64_t zeros = (key >> high_shift<W>(*head)) - head->high;
  const uint64_t needed = kHighsAt + head->count + zeros + uint64_t{head->count} * head->low_bits;
  if (FPSTORE_UNLIKELY(zeros > room || needed > room)) return bad_bits(b, room, zeros, fault);
  head->highs = head->count + static_cast<uint32_t>(zeros);
  return Status::ok;
}

// The streams of a block, as the steps of an instruction set take several entries of them at once.
struct HighParts {
  const uint8_t* p;
  uint32_t bits;
  uint64_t before;  // the high part of the key before
  unsigned shift;   // where a high part belongs in the leading word
};

struct LowParts {
  const uint8_t* block;
  uint32_t at;     // bit position of the first
  uint32_t bits;   // of each
  uint32_t limit;  // bytes of the block that can be read
};

constexpr uint32_t kLoadedBits = 57;  // of a load of eight bytes, from any bit on

// kLoadedBits of a block, or more, from bit position at on, the first lowest.
inline uint64_t bits_from(const uint8_t* p, uint32_t at) {
  return load64(p + (at >> 3)) >> (at & 7);
}

// The low part of entry i, at its place in the leading word.
template <class W>
inline uint64_t low_part(const uint8_t* p, const EliasFanoHead& head, uint32_t i) {
  const uint32_t at = kHighsAt + head.highs + i * head.low_bits;
  uint64_t low = bits_from(p, at);
  if (W::kLast == 63 && FPSTORE_UNLIKELY(head.low_bits > kLoadedBits))
    low |= static_cast<uint64_t>(p[(at >> 3) + 8]) << 1 << (63 - (at & 7));
  return (low & ((uint64_t{1} << head.low_bits) - 1)) << kUnused<W>;
}

template <class W>
inline uint64_t entry_at(const uint8_t* p, const EliasFanoHead& head, uint32_t i, uint64_t high) {
  return high << high_shift<W>(head) | low_part<W>(p, head, i);
}

// The bit position in the high parts behind zero number zeros, the first of which is number 1;
// head.highs where there are fewer.
template <class Isa>
inline uint32_t behind_zeros(const uint8_t* p, const EliasFanoHead& head, uint64_t zeros) {
  if (zeros == 0) return 0;
  uint32_t at = 0;
  // Which of the words it is in cannot be foretold: four are counted without a branch.
  for (; at < head.highs; at += 256) {
    const uint8_t* const q = p + kEliasFanoHeaderBytes + at / 8;
    const uint64_t a = Isa::count_ones(~load64(q)), b = a + Isa::count_ones(~load64(q + 8)),
                   c = b + Isa::count_ones(~load64(q + 16)),
                   d = c + Isa::count_ones(~load64(q + 24));
    if (FPSTORE_UNLIKELY(zeros > d)) {
      zeros -= d;
      continue;
    }
    const uint64_t behind_a = -uint64_t{zeros > a}, behind_b = -uint64_t{zeros > b},
                   behind_c = -uint64_t{zeros > c};
    const unsigned word = -static_cast<unsigned>(behind_a + behind_b + behind_c);
    zeros -= (a & behind_a) + ((b - a) & behind_b) + ((c - b) & behind_c);
    const uint32_t behind =
        at + 64 * word +
        Isa::select(~load64(q + 8 * word), (static_cast<unsigned>(zeros) - 1) & 63) + 1;
    return behind < head.highs ? behind : head.highs;
  }
  return head.highs;
}

// Moves a cursor, whose place is a bit position in the high parts, to the next entry from there on;
// false where there is none.
template <class W>
inline bool advance(const uint8_t* p, const EliasFanoHead& head, Cursor* c) {
  while (c->at < head.highs) {
    const uint64_t window = read_once(bits_from(p, kHighsAt + c->at));
    if (window == 0) {
      c->at += kLoadedBits;
      continue;
    }
    c->at += static_cast<uint32_t>(__builtin_ctzll(window));
    if (c->at >= head.highs || c->index >= head.count) return false;
    c->value = entry_at<W>(p, head, c->index, head.high + (c->at - c->index));
    return true;
  }
  return false;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
