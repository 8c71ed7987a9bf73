// Which of many tags are near that of a query: the inner loop of a probe, in portable C++. The
// other sets replace what they have instructions for.
#pragma once
#include "columns/view.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kTagsAtOnce = 512;

struct PortableTags {
  // Writes the places, ascending, of the tags that differ from the query's in at most limit <= 16
  // bits of the mask, and returns how many; n is at most kTagsAtOnce, and kSectionRoom bytes behind
  // the tags can be read.
  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask,
                            unsigned limit, uint16_t* places) {
    constexpr uint64_t lanes = 0x0001000100010001;
    const uint64_t q = query * lanes, live = mask * lanes, bound = (0x8000 | limit) * lanes;
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 4) {
      uint64_t x = (load64(tags + 2 * i) ^ q) & live;
      x -= x >> 1 & 0x5555555555555555;
      x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
      x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F;
      x = (x + (x >> 8)) & 0x001F001F001F001F;
      // No lane borrows from the next; its top bit stays where the distance is at most the limit.
      uint64_t hits = (bound - x) & (0x8000 * lanes);
      if (FPSTORE_UNLIKELY(n - i < 4)) hits &= (uint64_t{1} << 16 * (n - i)) - 1;
      for (; hits; hits &= hits - 1)
        places[count++] =
            static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctzll(hits)) / 16);
    }
    return count;
  }

  // Writes the places i < j of tags that are as near each other, from *row on as i while there is
  // room, and returns how many; *row is n at the end. n is at most kTagsAtOnce, and room at least
  // as large.
  template <class Isa>
  static unsigned near_pairs(const uint8_t* tags, unsigned n, unsigned* row, unsigned mask,
                             unsigned limit, uint16_t* left, uint16_t* right, unsigned room) {
    unsigned count = 0, i = *row;
    for (; i < n && room - count >= n - i; ++i) {
      const unsigned more = Isa::near_tags(tags + 2 * (i + 1), n - i - 1, load16(tags + 2 * i),
                                           mask, limit, right + count);
      for (unsigned k = 0; k < more; ++k) {
        left[count + k] = static_cast<uint16_t>(i);
        right[count + k] = static_cast<uint16_t>(right[count + k] + i + 1);
      }
      count += more;
    }
    *row = i;
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
