// The checksum of a block (docs/format.md, "Block checksum"): products of halves of words, as XXH3
// takes them (Collet, 2019), so that vectors take eight words at a time.
#pragma once
#include "format/xxh64.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kSumLanes = 8;
constexpr uint64_t kSumStep =
    kSumLanes * xxh::kP1;  // from the key of a word to that of the word eight behind it
constexpr uint64_t kUnsummed = 0xFFFFFFFF;  // of the first word: the checksum itself

// What is left of h, the sum of seed, lanes, and products of the halves of lanes with keys of their
// own.
inline uint32_t finish_sum(uint64_t h) { return static_cast<uint32_t>(xxh::avalanche(h)); }

inline uint32_t fold_lanes(const uint64_t* lanes, uint64_t seed) {
  uint64_t h = seed;
  for (unsigned j = 0; j < kSumLanes; ++j) {
    const uint64_t x = lanes[j] ^ (seed + (j + 1) * xxh::kP2);
    h += (x & 0xFFFFFFFF) * (x >> 32) + lanes[j];
  }
  return finish_sum(h);
}

// The checksum of a block; bytes is a multiple of 64.
inline uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
  uint64_t lanes[kSumLanes];
  for (unsigned j = 0; j < kSumLanes; j += 2) {  // few enough lanes at a time for the registers
    uint64_t key0 = seed + (j + 1) * xxh::kP1, key1 = key0 + xxh::kP1, sum0 = 0, sum1 = 0,
             own = j ? 0 : kUnsummed;
    for (uint32_t i = 8 * j; i < bytes; i += 8 * kSumLanes) {
      uint64_t word0, word1;
      memcpy(&word0, p + i, 8);
      memcpy(&word1, p + i + 8, 8);
      word0 &= ~own;
      own = 0;
      const uint64_t x0 = word0 ^ key0, x1 = word1 ^ key1;
      sum0 += (x0 & 0xFFFFFFFF) * (x0 >> 32) + word1;
      sum1 += (x1 & 0xFFFFFFFF) * (x1 >> 32) + word0;
      key0 += kSumStep;
      key1 += kSumStep;
    }
    lanes[j] = sum0;
    lanes[j + 1] = sum1;
  }
  return fold_lanes(lanes, seed);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
