// Permutations as rotations of masked words.
#include "format/permutation.hpp"

namespace fpstore {

void make_permutation(const uint8_t source[64], Permutation* forward, Permutation* inverse) {
  uint64_t by_rotation[64] = {};
  for (unsigned i = 0; i < 64; ++i) {
    // Bit positions count from the MSB: moving from source[i] to i is a left rotation by source[i] - i.
    by_rotation[(source[i] - i) & 63] |= uint64_t{1} << (63 - source[i]);
  }
  forward->count = inverse->count = 0;
  for (unsigned r = 0; r < 64; ++r) {
    const uint64_t mask = by_rotation[r];
    if (!mask) continue;
    forward->mask[forward->count] = mask;
    forward->rotate[forward->count++] = static_cast<uint8_t>(r);
    inverse->mask[inverse->count] = r ? (mask << r) | (mask >> (64 - r)) : mask;
    inverse->rotate[inverse->count++] = static_cast<uint8_t>((64 - r) & 63);
  }
}

}  // namespace fpstore
