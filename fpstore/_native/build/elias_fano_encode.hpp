// Encoder of the blocks of the Elias-Fano codec.
#pragma once
#include "build/output.hpp"
#include "format/elias_fano_block.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// Bits of both streams of count entries behind a key, of which the last is known, or more than any
// block has.
template <class W>
inline uint64_t elias_fano_bits(uint64_t before, uint64_t last, uint64_t count, unsigned low_bits) {
  const unsigned shift = low_bits + kUnused<W>;
  const uint64_t zeros = (last >> shift) - (before >> shift);
  return zeros > kMaxBlockBytes * 8 ? zeros : zeros + count * (1 + low_bits);
}

constexpr uint64_t kFewEntries = 8;

// The low bits with which they take the fewest bits, and the fewest low bits of several. With many
// entries and a mean gap of about 2^m, one low bit more or less costs more than it saves from m + 2
// on and up to m - 2.
template <class W>
inline unsigned best_low_bits(uint64_t before, uint64_t last, uint64_t count) {
  unsigned from = 0, to = W::kLast;
  if (count >= kFewEntries) {
    const uint64_t gap = (last - before) >> kUnused<W>;
    const unsigned mean = gap > count ? 63 - first_bit(gap / count) : 0;
    from = mean > 3 ? mean - 3 : 0;
    to = mean + 3 < to ? mean + 3 : to;
  }
  unsigned best = to;
  for (unsigned low_bits = to; low_bits-- > from;)
    if (elias_fano_bits<W>(before, last, count, low_bits) <=
        elias_fano_bits<W>(before, last, count, best))
      best = low_bits;
  return best;
}

// Whether the open block has room for another entry with this leading word.
template <class W>
inline bool has_room(Encoder* e, uint64_t leading, uint32_t count) {
  const uint32_t bytes = kEliasFanoHeaderBytes + (count + 1) * W::kRestBytes;
  if (bytes > e->block_bytes) return false;
  const uint64_t capacity = (e->block_bytes - bytes) * 8;
  if (FPSTORE_LIKELY(elias_fano_bits<W>(e->previous_key, leading, count + 1, e->low_bits) <=
                     capacity))
    return true;
  e->low_bits = best_low_bits<W>(e->previous_key, leading, count + 1);
  return elias_fano_bits<W>(e->previous_key, leading, count + 1, e->low_bits) <= capacity;
}

// Writes the header and the streams of the open block to out; up to eight bytes behind the block
// are read, and written as they are.
template <class W>
inline void write_elias_fano(const Encoder& e, uint8_t* out) {
  const unsigned low_bits = best_low_bits<W>(e.previous_key, e.last[0], e.count);
  const unsigned shift = low_bits + kUnused<W>;
  memset(out, 0, e.block_bytes);
  store16(out + 4, static_cast<uint16_t>(e.count));
  store16(out + 6, static_cast<uint16_t>(low_bits));
  const uint64_t high = e.previous_key >> shift, low_mask = (uint64_t{1} << low_bits) - 1;
  uint32_t at = kHighsAt + e.count + static_cast<uint32_t>((e.last[0] >> shift) - high);
  for (uint32_t i = 0; i < e.count; ++i, at += low_bits) {
    const uint32_t bit = kHighsAt + i + static_cast<uint32_t>((e.leads[i] >> shift) - high);
    out[bit / 8] = static_cast<uint8_t>(out[bit / 8] | 1u << (bit & 7));
    const uint64_t low = e.leads[i] >> kUnused<W> & low_mask;
    uint8_t* const p = out + (at >> 3);
    store64(p, load64(p) | low << (at & 7));
    if ((at & 7) + low_bits > 64) p[8] = static_cast<uint8_t>(p[8] | low >> 1 >> (63 - (at & 7)));
  }
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
