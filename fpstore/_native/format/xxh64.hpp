// XXH64 (Yann Collet's 64-bit xxHash, as specified in its public format description); held equal to
// the xxhash package by tests.
#pragma once
#include "format/row.hpp"

namespace fpstore {

namespace xxh {
constexpr uint64_t kP1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kP2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kP3 = 0x165667B19E3779F9u;
constexpr uint64_t kP4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kP5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotl(uint64_t x, int r) { return (x << r) | (x >> (64 - r)); }
static inline uint64_t lane(uint64_t acc, uint64_t input) {
  return rotl(acc + input * kP2, 31) * kP1;
}
static inline uint64_t fold(uint64_t h, uint64_t acc) { return (h ^ lane(0, acc)) * kP1 + kP4; }
static inline uint64_t avalanche(uint64_t h) {
  h = (h ^ (h >> 33)) * kP2;
  h = (h ^ (h >> 29)) * kP3;
  return h ^ (h >> 32);
}
}  // namespace xxh

// Hash of length bytes at data; reads exactly those bytes.
static inline uint64_t xxh64(const uint8_t* data, size_t length, uint64_t seed) {
  using namespace xxh;
  const uint8_t* p = data;
  const uint8_t* const end = data + length;
  uint64_t h;
  if (length >= 32) {
    uint64_t a = seed + kP1 + kP2, b = seed + kP2, c = seed, d = seed - kP1;
    for (; end - p >= 32; p += 32) {
      a = lane(a, load64(p));
      b = lane(b, load64(p + 8));
      c = lane(c, load64(p + 16));
      d = lane(d, load64(p + 24));
    }
    h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
    h = fold(fold(fold(fold(h, a), b), c), d);
  } else {
    h = seed + kP5;
  }
  h += length;
  for (; end - p >= 8; p += 8) h = rotl(h ^ lane(0, load64(p)), 27) * kP1 + kP4;
  if (end - p >= 4) {
    h = rotl(h ^ (load32(p) * kP1), 23) * kP2 + kP3;
    p += 4;
  }
  for (; p < end; ++p) h = rotl(h ^ (*p * kP5), 11) * kP1;
  return avalanche(h);
}

// The XXH64 of the little-endian bytes of the words of a row, seed 0: the element hash of a set
// digest.
static inline uint64_t xxh64_row(uint64_t x) {
  using namespace xxh;
  uint64_t h = kP5 + 8;
  h = rotl(h ^ lane(0, x), 27) * kP1 + kP4;
  return avalanche(h);
}
template <unsigned Words>
static inline uint64_t xxh64_row(const Wide<Words>& x) {
  return xxh64(reinterpret_cast<const uint8_t*>(x.word), sizeof x, 0);
}

}  // namespace fpstore
