// Which bits of the number of a bucket are flipped: masks with the same number of ones, in
// ascending order.
#pragma once
#include <cstdint>

namespace fpstore {
inline namespace FPSTORE_ISA {

inline uint32_t first_mask(unsigned ones) { return (uint32_t{1} << ones) - 1; }

// The next mask with as many ones, which is not below the end when there is none.
inline uint32_t next_mask(uint32_t mask, uint32_t end) {
  if (!mask) return end;
  const uint32_t lowest = mask & (0 - mask), carried = mask + lowest;
  return carried | (mask ^ carried) >> 2 >> __builtin_ctz(mask);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
