// Permutations as rotations of masked words.
#include "format/permutation.hpp"

#include "format/errors.hpp"

namespace fpstore {

namespace {

void add_term(Permutation* p, unsigned from, unsigned to, unsigned rotate, uint64_t mask) {
  p->from[p->count] = static_cast<uint8_t>(from);
  p->to[p->count] = static_cast<uint8_t>(to);
  p->rotate[p->count] = static_cast<uint8_t>(rotate);
  p->mask[p->count++] = mask;
}

}  // namespace

bool is_permutation(const uint8_t* source, unsigned bits) {
  bool seen[kMaxWidth] = {};
  for (unsigned i = 0; i < bits; ++i) {
    if (source[i] >= bits || seen[source[i]]) return false;
    seen[source[i]] = true;
  }
  return true;
}

void make_permutation(const uint8_t* source, unsigned bits, Permutation* forward,
                      Permutation* inverse) {
  uint64_t masks[kMaxWords][kMaxWords][64] =
      {};  // by word of the source, word of the destination and rotation
  for (unsigned i = 0; i < bits; ++i) {
    // Bit positions count from the MSB: moving from place a to place b of a word is a left rotation
    // by a - b.
    masks[source[i] / 64][i / 64][(source[i] - i) & 63] |= uint64_t{1} << (63 - source[i] % 64);
  }
  forward->count = inverse->count = 0;
  for (unsigned to = 0; to < kMaxWords; ++to)
    for (unsigned from = 0; from < kMaxWords; ++from)
      for (unsigned r = 0; r < 64; ++r) {
        const uint64_t mask = masks[from][to][r];
        if (!mask) continue;
        add_term(forward, from, to, r, mask);
        add_term(inverse, to, from, (64 - r) & 63, rotated(mask, r));
      }
}

Permutation permutation_of(const uint8_t* source, size_t size, bool inverse) {
  const unsigned bits = static_cast<unsigned>(size);
  need(is_width(bits), "a permutation has 32, 64, 128 or 256 entries");
  need(is_permutation(source, bits), "not a permutation of the bits");
  Permutation forward, backward;
  make_permutation(source, bits, &forward, &backward);
  return inverse ? backward : forward;
}

}  // namespace fpstore
