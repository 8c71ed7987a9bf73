// What is asked of the least values of hash functions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace fpstore {

constexpr size_t kFunctionsAtLeast = 64;

// Function i has the value factors[i] * feature + terms[i], modulo 2^32. The count is a multiple of
// kFunctionsAtLeast.
struct HashFunctions {
  const uint32_t* factors;
  const uint32_t* terms;
  size_t count;
};

// Lowers minima[i] to the least value that function i has on n features.
using LowerMinima = void (*)(const HashFunctions& functions, const uint32_t* features, size_t n,
                             uint32_t* minima);

}  // namespace fpstore
