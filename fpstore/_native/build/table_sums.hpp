// What a table says of all its keys: how often each h comes, and their digest.
#pragma once
#include "format/permutation.hpp"
#include "format/xxh64.hpp"

namespace fpstore {
namespace {

size_t histogram(const uint64_t* keys, size_t n, uint64_t counts[kSymbols]) {
  uint64_t local[4][kSymbols] = {};
  size_t i = 1;
  for (; i + 4 <= n; i += 4) {
    if (__builtin_expect((keys[i] <= keys[i - 1]) | (keys[i + 1] <= keys[i]) | (keys[i + 2] <= keys[i + 1]) |
                             (keys[i + 3] <= keys[i + 2]),
                         0))
      break;
    for (size_t j = 0; j < 4; ++j) ++local[j][first_bit(keys[i + j] ^ keys[i + j - 1])];
  }
  size_t bad = n;
  for (; i < n; ++i) {
    if (keys[i] <= keys[i - 1]) {
      bad = i;
      break;
    }
    ++local[0][first_bit(keys[i] ^ keys[i - 1])];
  }
  for (unsigned s = 0; s < kSymbols; ++s) counts[s] += local[0][s] + local[1][s] + local[2][s] + local[3][s];
  return bad;
}

uint64_t digest(const Permutation& inverse, const uint64_t* keys, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += xxh64_u64(apply(inverse, keys[i]));
  return sum;
}

}  // namespace
}  // namespace fpstore
