// The rows of an array that are near a query.
#pragma once
#include "isa/kernels.hpp"
#include "isa/portable.hpp"

namespace fpstore {
namespace {

template <class Isa>
size_t near(const uint64_t* keys, size_t n, const uint64_t* query, unsigned radius, uint32_t* places) {
  using W = typename Isa::W;
  if constexpr (!W::kWide) {
    return Isa::near(keys, n, *query, radius, places);
  } else {
    size_t count = 0;
    for (size_t i = 0; i < n; ++i, keys += W::kWords) {
      unsigned distance = 0;
      for (unsigned word = 0; word < W::kWords; ++word) distance += ones(keys[word] ^ query[word]);
      places[count] = static_cast<uint32_t>(i);
      count += distance <= radius;
    }
    return count;
  }
}

}  // namespace
}  // namespace fpstore
