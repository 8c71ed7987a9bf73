// NEON, which every aarch64 processor has.
#pragma once
#include <arm_neon.h>

#include "columns/near_tags.hpp"
#include "isa/portable.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class Width_>
struct Neon : Portable<Width_> {
  using W = Width_;

  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
    const uint64x2_t step = vdupq_n_u64(kSumStep);
    uint64x2_t keys[kSumLanes / 2], sums[kSumLanes / 2];
    for (unsigned j = 0; j < kSumLanes / 2; ++j) {
      keys[j] = vcombine_u64(vcreate_u64(seed + (2 * j + 1) * xxh::kP1),
                             vcreate_u64(seed + (2 * j + 2) * xxh::kP1));
      sums[j] = vdupq_n_u64(0);
    }
    uint64x2_t own = vcombine_u64(vcreate_u64(kUnsummed), vcreate_u64(0));
    for (uint32_t i = 0; i < bytes; i += 8 * kSumLanes) {
      for (unsigned j = 0; j < kSumLanes / 2; ++j) {
        uint64x2_t words = vreinterpretq_u64_u8(vld1q_u8(p + i + 16 * j));
        if (j == 0) words = vbicq_u64(words, own);
        const uint64x2_t x = veorq_u64(words, keys[j]);
        sums[j] = vaddq_u64(vmlal_u32(sums[j], vmovn_u64(x), vshrn_n_u64(x, 32)),
                            vextq_u64(words, words, 1));
        keys[j] = vaddq_u64(keys[j], step);
      }
      own = vdupq_n_u64(0);
    }
    uint64_t lanes[kSumLanes];
    for (unsigned j = 0; j < kSumLanes / 2; ++j) vst1q_u64(lanes + 2 * j, sums[j]);
    return fold_lanes(lanes, seed);
  }

  // Two low parts lie in 16 bytes, wherever the first begins. Where that is behind the block, there
  // is no such entry.
  static void join_parts(const HighParts& highs, const uint16_t* rises, const LowParts& lows,
                         uint32_t count, uint64_t* out) {
    const uint64x2_t mask = vdupq_n_u64((uint64_t{1} << lows.bits) - 1),
                     before = vdupq_n_u64(highs.before);
    const int64x2_t up = vdupq_n_s64(static_cast<int64_t>(highs.shift));
    uint32_t from[4];  // the byte from which on each pair is taken
    uint8x16_t places[4];
    int64x2_t shifts[4];
    for (unsigned k = 0; k < 4; ++k) {
      const uint32_t first = (lows.at & 7) + 2 * k * lows.bits, second = first + lows.bits;
      constexpr uint64_t numbers = 0x0706050403020100, each = 0x0101010101010101;
      from[k] = first >> 3;
      places[k] = vreinterpretq_u8_u64(vcombine_u64(
          vcreate_u64(numbers), vcreate_u64(numbers + ((second >> 3) - from[k]) * each)));
      shifts[k] = vcombine_s64(vdup_n_s64(-static_cast<int64_t>(first & 7)),
                               vdup_n_s64(-static_cast<int64_t>(second & 7)));
    }
    const uint32_t last = lows.limit - 16;  // from which on 16 bytes can be loaded
    uint32_t at = lows.at >> 3;
    for (uint32_t i = 0; i < count; i += 8, at += lows.bits) {
      const uint16x8_t rise = vld1q_u16(rises + i);
      const uint32x4_t rise0 = vmovl_u16(vget_low_u16(rise)),
                       rise1 = vmovl_u16(vget_high_u16(rise));
      const uint64x2_t high[4] = {vmovl_u32(vget_low_u32(rise0)), vmovl_u32(vget_high_u32(rise0)),
                                  vmovl_u32(vget_low_u32(rise1)), vmovl_u32(vget_high_u32(rise1))};
      for (unsigned k = 0; k < 4; ++k) {
        const uint8x16_t bytes = vld1q_u8(lows.block + (at + from[k] < last ? at + from[k] : last));
        const uint64x2_t low = vandq_u64(
            vshlq_u64(vreinterpretq_u64_u8(vqtbl1q_u8(bytes, places[k])), shifts[k]), mask);
        const uint64x2_t placed = vshlq_u64(low, vdupq_n_s64(kUnused<W>));
        vst1q_u64(out + i + 2 * k, vorrq_u64(vshlq_u64(vaddq_u64(high[k], before), up), placed));
      }
    }
  }

  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    const uint64x2_t bound = vdupq_n_u64(target);
    uint64x2_t below = vdupq_n_u64(0);
    uint64_t i = 0;
    for (; i + 2 <= n; i += 2) below = vsubq_u64(below, vcgtq_u64(bound, vld1q_u64(keys + i)));
    return vaddvq_u64(below) + (i < n && keys[i] < target);
  }

  // The least distance of 16 words to one: sums of pairs of bytes, until each word has one byte.
  static unsigned least_distance(const uint64_t* values, uint64x2_t base) {
    uint8x16_t sums[8];
    for (unsigned k = 0; k < 8; ++k)
      sums[k] = vcntq_u8(vreinterpretq_u8_u64(veorq_u64(vld1q_u64(values + 2 * k), base)));
    for (unsigned n = 4; n; n /= 2)
      for (unsigned k = 0; k < n; ++k) sums[k] = vpaddq_u8(sums[2 * k], sums[2 * k + 1]);
    return vminvq_u8(sums[0]);
  }

  // What lies past the entries is scratch, told apart only when something is near.
  static bool match_values(const ScanQuery<W>& q, const LeadingWords& entries) {
    const uint64x2_t base = vdupq_n_u64(leading_word(q.permuted));
    for (uint32_t i = 0; i < entries.n; i += 16) {
      if (FPSTORE_LIKELY(least_distance(entries.values + i, base) > q.radius)) continue;
      if (!Portable<W>::match_values(q, Portable<W>::some_of(entries, i))) return false;
    }
    return true;
  }

  static constexpr unsigned kAtOnce = 16;
  static bool any_near(const uint64_t* values, uint64_t base, unsigned radius) {
    return least_distance(values, vdupq_n_u64(base)) <= radius;
  }

  static bool filter_values(const Emitter<W>& out, const Item<W>& item, const LeadingWords& entries,
                            uint32_t from) {
    const uint64x2_t base = vdupq_n_u64(leading_word(item.base));
    for (uint32_t i = from; i < entries.n && entries.values[i] <= item.last; i += 16) {
      if (FPSTORE_LIKELY(least_distance(entries.values + i, base) > out.options.radius)) continue;
      if (!Portable<W>::filter_some(out, item, entries, i, i + 16)) return false;
    }
    return true;
  }

  static size_t within_radius(const uint64_t* keys, size_t n, uint64_t query, unsigned radius,
                              uint32_t* places) {
    const uint64x2_t base = vdupq_n_u64(query);
    size_t count = 0;
    for (size_t i = 0; i < n; i += 16) {
      if (n - i >= 16 && FPSTORE_LIKELY(least_distance(keys + i, base) > radius)) continue;
      for (size_t j = i; j < n && j < i + 16; ++j)
        if (ones(keys[j] ^ query) <= radius) places[count++] = static_cast<uint32_t>(j);
    }
    return count;
  }
};

// 16 tags at a time, the bits of each byte counted by an instruction of their own.
struct NeonTags : PortableTags {
  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask,
                            unsigned limit, uint16_t* places) {
    const uint16x8_t wanted = vdupq_n_u16(static_cast<uint16_t>(query)),
                     live = vdupq_n_u16(static_cast<uint16_t>(mask));
    const uint16x8_t bound = vdupq_n_u16(static_cast<uint16_t>(limit));
    const auto within_radius = [&](const uint8_t* p) {
      const uint16x8_t x = vandq_u16(veorq_u16(vreinterpretq_u16_u8(vld1q_u8(p)), wanted), live);
      return vcleq_u16(vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u16(x))), bound);
    };
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 16) {
      // A byte for each tag, of which four bits stay.
      const uint8x16_t both = vcombine_u8(vmovn_u16(within_radius(tags + 2 * i)),
                                          vmovn_u16(within_radius(tags + 2 * i + 16)));
      uint64_t hits =
          vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(both), 4)), 0) &
          0x1111111111111111;
      if (n - i < 16) hits &= (uint64_t{1} << 4 * (n - i)) - 1;
      for (; hits; hits &= hits - 1)
        places[count++] =
            static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctzll(hits)) / 4);
    }
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
