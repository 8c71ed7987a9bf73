// The least values of hash functions on many features, as each instruction set has them.
#pragma once
#include <cstring>

#include "text/minima_request.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// kVectors vectors of values, and the factors and terms of as many functions, stay in registers
// while all features pass. A compiler that has no vectors of kBytes takes them apart, and is many
// times as slow: the instruction set says what it has.
template <size_t kBytes, size_t kVectors>
void lower_minima(const HashFunctions& functions, const uint32_t* features, size_t n,
                  uint32_t* minima) {
  typedef uint32_t Lanes __attribute__((vector_size(kBytes)));
  constexpr size_t kTogether = kVectors * kBytes / sizeof(uint32_t);
  static_assert(kFunctionsAtLeast % kTogether == 0, "there are no functions left over");
  for (size_t first = 0; first < functions.count; first += kTogether) {
    Lanes factors[kVectors], terms[kVectors], least[kVectors];
    memcpy(factors, functions.factors + first, sizeof factors);
    memcpy(terms, functions.terms + first, sizeof terms);
    memcpy(least, minima + first, sizeof least);
    for (size_t i = 0; i < n; ++i)
      for (size_t v = 0; v < kVectors; ++v) {
        const Lanes values = factors[v] * features[i] + terms[v];
        least[v] = values < least[v] ? values : least[v];
      }
    memcpy(minima + first, least, sizeof least);
  }
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
