// Bit permutations of fingerprints.
#pragma once
#include "format/common.hpp"

namespace fpstore {

// A bit permutation as rotations of masked words: out = OR of rotl(x & mask[i], rotate[i]). At most 64 terms, few in practice.
struct Permutation {
  unsigned count;
  uint8_t rotate[64];
  uint64_t mask[64];
};
// source[i] is the source bit of destination bit i (0 = MSB); inverse swaps the roles.
void make_permutation(const uint8_t source[64], Permutation* forward, Permutation* inverse);

static inline uint64_t apply(const Permutation& p, uint64_t x) {
  uint64_t y = 0;
  for (unsigned i = 0; i < p.count; ++i) {
    const uint64_t part = x & p.mask[i];
    const unsigned r = p.rotate[i];
    y |= (part << r) | (part >> ((64 - r) & 63));
  }
  return y;
}

}  // namespace fpstore
