// The keys of bands of sketches (docs/format.md, "LSH index"). Knows nothing of Python.
#pragma once
#include "format/common.hpp"

namespace fpstore {

// The constants of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
constexpr uint64_t kBandStep = 0x9E3779B97F4A7C15, kBandFirst = 0xBF58476D1CE4E5B9,
                   kBandSecond = 0x94D049BB133111EB;

inline uint64_t band_mixed(uint64_t word, uint64_t factor) {
  word *= factor;
  return word ^ word >> 31;
}

// The key of each band of a sketch: a hash of its number and of its values.
inline void band_keys(const uint32_t* sketch, size_t bands, size_t rows, uint64_t* keys) {
  for (size_t band = 0; band < bands; ++band) {
    uint64_t key = (band + 1) * kBandStep;
    for (size_t row = 0; row < rows; ++row)
      key = band_mixed(key ^ sketch[band * rows + row], kBandFirst);
    keys[band] = band_mixed(key, kBandSecond);
  }
}

}  // namespace fpstore
