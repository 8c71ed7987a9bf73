// The kernels for AVX2 and BMI machines: the compiler's own vectors, and explicit ones where codes and keys are searched.
#include <immintrin.h>

#include "format/xxh64.hpp"
#include "isa/kernels.hpp"

namespace fpstore {
namespace {

// From how many expected entries a prefix on, comparing all entries of a block beats looking for the prefix in its codes.
constexpr uint64_t kExpandFrom = 64;
constexpr unsigned kExpandShared = UINT32_MAX;  // never: looking is cheaper

#include "format/codec.inc"
#include "build/encode.inc"
#include "search/locate.inc"
#include "build/sort.inc"
#include "search/probe.inc"
#include "search/near.inc"

inline uint32_t tail_bits(const uint8_t* h, uint32_t n) {
  uint32_t i = 0;
  __m256i sum = _mm256_setzero_si256();
  for (; i + 32 <= n; i += 32)
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i)),
                                                _mm256_setzero_si256()));
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  const uint32_t total = static_cast<uint32_t>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
  return 63 * i - total + tail_bits_scalar(h + i, n - i);
}

inline uint32_t code_bits(const DecodeTable& code, const uint8_t* h, uint32_t n) { return code_bits_scalar(code, h, n); }

inline void hash_group(const uint8_t* const* data, size_t length, const uint64_t* seeds, unsigned n, uint64_t* out) {
  hash_group_scalar(data, length, seeds, n, out);
}

inline uint64_t expand(const uint8_t* p, uint32_t, uint32_t at, const uint8_t* h, uint32_t n, uint64_t previous, uint64_t* out) {
  return expand_scalar(p, at, h, n, previous, out);
}

// Reads up to 31 bytes past n: h is scratch with that much room.
inline uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
  const __m256i bound = _mm256_set1_epi8(static_cast<char>(limit));
  for (; from < n; from += 32) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + from));
    const uint32_t hits = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(x, bound), x)));
    if (hits) {
      const uint32_t at = from + static_cast<uint32_t>(__builtin_ctz(hits));
      return at < n ? at : n;
    }
  }
  return n;
}

inline uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
  uint64_t below = 0;
  for (uint64_t i = 0; i < n; ++i) below += keys[i] < target;
  return below;
}

inline bool match_values(const uint64_t* values, uint32_t n, const Permutation& inverse, uint64_t permuted, uint64_t query,
                         uint32_t index, unsigned radius, Sink* sink) {
  return match_values_scalar(values, n, inverse, permuted, query, index, radius, sink);
}

inline bool filter_values(const Emitter& out, const Item& item, uint64_t mask, const uint64_t* values, uint32_t n) {
  return filter_values_scalar(out, item, mask, values, n);
}

inline void seek_group(const Seek* seeks, unsigned n, Cursor* cursors, bool* fine) {
  seek_group_scalar(seeks, n, cursors, fine);
}

inline size_t near(const uint64_t* keys, size_t n, uint64_t query, unsigned radius, uint32_t* places) {
  const __m256i base = _mm256_set1_epi64x(static_cast<long long>(query));
  const __m256i bound = _mm256_set1_epi64x(static_cast<long long>(radius) + 1);
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i bits = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  size_t count = 0, i = 0;
  for (; i + 4 <= n; i += 4) {
    const __m256i x = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i)), base);
    const __m256i halves = _mm256_add_epi8(_mm256_shuffle_epi8(bits, _mm256_and_si256(x, low)),
                                           _mm256_shuffle_epi8(bits, _mm256_and_si256(_mm256_srli_epi16(x, 4), low)));
    const __m256i distance = _mm256_sad_epu8(halves, _mm256_setzero_si256());
    unsigned hits = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(bound, distance))));
    for (; hits; hits &= hits - 1) places[count++] = static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(hits));
  }
  for (; i < n; ++i)
    if (static_cast<unsigned>(__builtin_popcountll(keys[i] ^ query)) <= radius) places[count++] = static_cast<uint32_t>(i);
  return count;
}

#include "isa/kernel_set.inc"

}  // namespace

const Kernels kAvx2 = make_set("avx2");

}  // namespace fpstore
