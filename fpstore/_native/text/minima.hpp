// The least values of hash functions on many features, as each instruction set has them.
#pragma once
#include <cstring>

#include "text/minima_request.hpp"

namespace fpstore {
namespace {

// Some functions stay in registers while all features pass.
inline void lower_minima(const HashFunctions& functions, const uint32_t* features, size_t n, uint32_t* minima) {
  typedef uint32_t Lanes __attribute__((vector_size(64)));
  constexpr size_t kLanes = sizeof(Lanes) / sizeof(uint32_t);
  for (size_t first = 0; first < functions.count; first += 2 * kLanes) {
    Lanes factors[2], terms[2], least[2];
    memcpy(factors, functions.factors + first, sizeof factors);
    memcpy(terms, functions.terms + first, sizeof terms);
    memcpy(least, minima + first, sizeof least);
    for (size_t i = 0; i < n; ++i) {
      const Lanes low = factors[0] * features[i] + terms[0], high = factors[1] * features[i] + terms[1];
      least[0] = low < least[0] ? low : least[0];
      least[1] = high < least[1] ? high : least[1];
    }
    memcpy(minima + first, least, sizeof least);
  }
}

}  // namespace
}  // namespace fpstore
