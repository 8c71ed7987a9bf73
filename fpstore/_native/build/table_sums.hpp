// What a table says of all its keys: how often each h comes, and their digest.
#pragma once
#include "build/block_encode.hpp"
#include "format/permutation.hpp"
#include "format/xxh64.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class Row>
size_t histogram(const uint64_t* words, size_t n, uint64_t counts[kSymbols]) {
  const Row* const keys = rows<Row>(words);
  uint64_t local[4][kSymbols] = {};
  size_t i = 1;
  for (; i + 4 <= n; i += 4) {
    unsigned wrong = 0;
    for (size_t j = 0; j < 4; ++j) wrong |= static_cast<unsigned>(keys[i + j] <= keys[i + j - 1]);
    if (FPSTORE_UNLIKELY(wrong != 0)) break;
    for (size_t j = 0; j < 4; ++j) ++local[j][symbol_between(keys[i + j - 1], keys[i + j])];
  }
  size_t bad = n;
  for (; i < n; ++i) {
    if (keys[i] <= keys[i - 1]) {
      bad = i;
      break;
    }
    ++local[0][symbol_between(keys[i - 1], keys[i])];
  }
  for (unsigned s = 0; s < kSymbols; ++s)
    counts[s] += local[0][s] + local[1][s] + local[2][s] + local[3][s];
  return bad;
}

template <class Row>
uint64_t digest(const Permutation& inverse, const uint64_t* words, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += xxh64_row(apply(inverse, rows<Row>(words)[i]));
  return sum;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
