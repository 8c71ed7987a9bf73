// The checksum of a block (docs/format.md, "Block checksum"): products of halves of words, as XXH3 takes them (Collet, 2019), so that
// vectors take eight words at a time.
#pragma once
#include "format/xxh64.hpp"

namespace fpstore {
namespace {

constexpr unsigned kSumLanes = 8;
constexpr uint64_t kSumStep = kSumLanes * xxh::kP1;  // from the key of a word to that of the word eight behind it
constexpr uint64_t kUnsummed = 0xFFFFFFFF;           // of the first word: the checksum itself

// What is left of h, the sum of seed, lanes, and products of the halves of lanes with keys of their own.
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
  uint64_t lanes[kSumLanes] = {}, keys[kSumLanes], own = kUnsummed;
  for (unsigned j = 0; j < kSumLanes; ++j) keys[j] = seed + (j + 1) * xxh::kP1;
  for (uint32_t i = 0; i < bytes; i += 8 * kSumLanes) {
    uint64_t words[kSumLanes];
    memcpy(words, p + i, sizeof words);
    words[0] &= ~own;
    own = 0;
    for (unsigned j = 0; j < kSumLanes; ++j) {
      const uint64_t x = words[j] ^ keys[j];
      lanes[j] += (x & 0xFFFFFFFF) * (x >> 32) + words[j ^ 1];
      keys[j] += kSumStep;
    }
  }
  return fold_lanes(lanes, seed);
}

}  // namespace
}  // namespace fpstore
