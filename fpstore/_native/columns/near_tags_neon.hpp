// Near tags with NEON: 16 at a time, the bits of each byte counted by an instruction of their own.
#pragma once
#include <arm_neon.h>
#include "columns/near_tags.hpp"

namespace fpstore {
namespace {

struct NeonTags : PortableTags {
  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask, unsigned limit, uint16_t* places) {
    const uint16x8_t wanted = vdupq_n_u16(static_cast<uint16_t>(query)), live = vdupq_n_u16(static_cast<uint16_t>(mask));
    const uint16x8_t bound = vdupq_n_u16(static_cast<uint16_t>(limit));
    const auto near = [&](const uint8_t* p) {
      const uint16x8_t x = vandq_u16(veorq_u16(vreinterpretq_u16_u8(vld1q_u8(p)), wanted), live);
      return vcleq_u16(vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u16(x))), bound);
    };
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 16) {
      // A byte for each tag, of which four bits stay.
      const uint8x16_t both = vcombine_u8(vmovn_u16(near(tags + 2 * i)), vmovn_u16(near(tags + 2 * i + 16)));
      uint64_t hits = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(both), 4)), 0) & 0x1111111111111111;
      if (n - i < 16) hits &= (uint64_t{1} << 4 * (n - i)) - 1;
      for (; hits; hits &= hits - 1) places[count++] = static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctzll(hits)) / 4);
    }
    return count;
  }
};

}  // namespace
}  // namespace fpstore
