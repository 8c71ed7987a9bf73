// Bit permutations of fingerprints.
#pragma once
#include "format/row.hpp"

namespace fpstore {

// A bit permutation as rotations of masked words: a word of the result is the OR of rotl(word of x
// & mask, rotate) over its terms. At most one term a bit, few in practice.
struct Permutation {
  unsigned count;
  uint8_t rotate[kMaxWidth];
  uint8_t from[kMaxWidth];  // words; 0 where a fingerprint is one word
  uint8_t to[kMaxWidth];
  uint64_t mask[kMaxWidth];
};
// Whether each of the numbers below bits, at most kMaxWidth, is there once.
bool is_permutation(const uint8_t* source, unsigned bits);
// source[i] is the source bit of destination bit i (0 = MSB), of which there are bits; inverse
// swaps the roles. Other bits become 0.
void make_permutation(const uint8_t* source, unsigned bits, Permutation* forward,
                      Permutation* inverse);
// The permutation of the bits of a fingerprint, or its inverse; an invalid_argument if it is none.
Permutation permutation_of(const uint8_t* source, size_t bits, bool inverse);

static inline uint64_t rotated(uint64_t x, unsigned left) {
  return (x << left) | (x >> ((64 - left) & 63));
}

static inline uint64_t apply(const Permutation& p, uint64_t x) {
  uint64_t y = 0;
  for (unsigned i = 0; i < p.count; ++i) y |= rotated(x & p.mask[i], p.rotate[i]);
  return y;
}
template <unsigned Words>
static inline Wide<Words> apply(const Permutation& p, const Wide<Words>& x) {
  Wide<Words> y{};
  for (unsigned i = 0; i < p.count; ++i)
    y.word[p.to[i] & (Words - 1)] |=
        rotated(x.word[p.from[i] & (Words - 1)] & p.mask[i], p.rotate[i]);
  return y;
}

// What a permutation moves to the leading bits.
static inline Permutation leading_part(const Permutation& p, unsigned bits) {
  Permutation out{};
  for (unsigned i = 0; i < p.count; ++i) {
    const uint64_t mask = p.mask[i] & rotated(top_mask(bits), (64u - p.rotate[i]) & 63);
    if (p.to[i] || !mask) continue;
    out.rotate[out.count] = p.rotate[i];
    out.from[out.count] = p.from[i];
    out.mask[out.count++] = mask;
  }
  return out;
}

// What all goes to the first word.
static inline uint64_t gather(const Permutation& p, const uint64_t* x) {
  uint64_t y = 0;
  for (unsigned i = 0; i < p.count; ++i) y |= rotated(x[p.from[i]] & p.mask[i], p.rotate[i]);
  return y;
}

}  // namespace fpstore
