// Sums of bits over many words, at each position, as each instruction set has them.
#pragma once
#include <cstring>

#include "text/text_kernels.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <size_t kBytes>
using Lanes __attribute__((vector_size(kBytes))) = uint64_t;

// Vertical counters: plane i holds bit i of the counts of all positions, in each word of a vector.
// Vectors are taken sixteen at a time through a tree of carry-save adders (Harley and Seal), so
// that only one carry in sixteen vectors ripples.
template <class Lanes>
struct BitPlanes {
  static constexpr unsigned kPlanes = 11;
  static_assert(kMaxCounted >> kPlanes == 0, "a word may count all");

  void add_group(const Lanes* group) {
    const Lanes carry = add_tree(group, 3);
    ripple(carry, 4, kPlanes);
  }

  // Adds two vectors to plane i; what they carry counts for plane i + 1.
  Lanes add_two(unsigned i, Lanes a, Lanes b) {
    const Lanes u = planes[i] ^ a, carry = (planes[i] & a) | (u & b);
    planes[i] = u ^ b;
    return carry;
  }
  // Adds the 2 << i vectors at v to the planes from 0 to i.
  Lanes add_tree(const Lanes* v, unsigned i) {
    if (i == 0) return add_two(0, v[0], v[1]);
    const Lanes low = add_tree(v, i - 1);
    return add_two(i, low, add_tree(v + (1u << i), i - 1));
  }
  void ripple(Lanes carry, unsigned i, unsigned end) {
    for (; i < end; ++i) {
      const Lanes next = planes[i] & carry;
      planes[i] ^= carry;
      carry = next;
    }
  }

  Lanes planes[kPlanes] = {};
};

// Adds the counts of `used` planes, of all words of their vectors, to others of one word.
template <size_t kBytes>
void add_planes(const Lanes<kBytes>* from, unsigned used, uint64_t* to) {
  if constexpr (kBytes == sizeof(uint64_t)) {
    uint64_t carry = 0;
    for (unsigned i = 0; i < used || carry; ++i) {
      uint64_t plane = 0;
      if (i < used) memcpy(&plane, &from[i], sizeof plane);
      const uint64_t u = to[i] ^ plane;
      const uint64_t next = (to[i] & plane) | (u & carry);
      to[i] = u ^ carry;
      carry = next;
    }
  } else {
    Lanes<kBytes / 2> sums[64], carry = {};
    for (unsigned i = 0; i < used; ++i) {
      Lanes<kBytes / 2> halves[2];
      memcpy(halves, &from[i], sizeof halves);
      const Lanes<kBytes / 2> u = halves[0] ^ halves[1];
      sums[i] = u ^ carry;
      carry = (halves[0] & halves[1]) | (u & carry);
    }
    sums[used] = carry;
    add_planes<kBytes / 2>(sums, used + 1, to);
  }
}

template <size_t kBytes>
void count_bits(const uint64_t* words, size_t n, uint64_t* planes) {
  constexpr size_t kGroup = 16, kWords = kGroup * kBytes / sizeof(uint64_t);
  BitPlanes<Lanes<kBytes>> sums;
  Lanes<kBytes> group[kGroup];
  unsigned used = 5;
  for (size_t groups = n / kWords; groups; groups /= 2) ++used;
  for (; n >= kWords; n -= kWords, words += kWords) {
    memcpy(group, words, sizeof group);
    sums.add_group(group);
  }
  if (n > kWords / 2) {
    memset(group, 0, sizeof group);
    memcpy(group, words, n * sizeof(uint64_t));
    sums.add_group(group);
    n = 0;
  }
  for (constexpr size_t kOne = kWords / kGroup; n; n -= n < kOne ? n : kOne, words += kOne) {
    Lanes<kBytes> few = {};
    memcpy(&few, words, (n < kOne ? n : kOne) * sizeof(uint64_t));
    sums.ripple(few, 0, used);
  }
  add_planes<kBytes>(sums.planes, used, planes);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
