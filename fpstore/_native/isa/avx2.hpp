// AVX2 and BMI: the compiler's own vectors, and explicit ones where codes and keys are searched.
#pragma once
#include <immintrin.h>
#include "isa/portable.hpp"

namespace fpstore {
namespace {

// The places of the set bits of each byte, ascending, less how many are set before: by how much high parts grow.
struct BitPlaces {
  uint8_t of[256][8];
};

constexpr BitPlaces make_bit_places() {
  BitPlaces places{};
  for (unsigned byte = 0; byte < 256; ++byte)
    for (uint8_t bit = 0, set = 0; bit < 8; ++bit)
      if (byte >> bit & 1) {
        places.of[byte][set] = static_cast<uint8_t>(bit - set);
        ++set;
      }
  return places;
}

constexpr BitPlaces kBitPlaces = make_bit_places();

template <class Width_>
struct Avx2 : Portable<Width_> {
  using W = Width_;

  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
    const auto all = [](uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    const __m256i step = all(kSumStep), seeds = all(seed);
    __m256i key0 = _mm256_add_epi64(seeds, multiples(xxh::kP1, 1)), key1 = _mm256_add_epi64(seeds, multiples(xxh::kP1, 5));
    const __m256i unsummed = _mm256_setr_epi64x(kUnsummed, 0, 0, 0);
    __m256i sum0 = mixed(_mm256_andnot_si256(unsummed, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), key0);
    __m256i sum1 = mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)), key1);
    const uint8_t* const end = p + bytes;
    for (p += 64; p < end; p += 64) {
      key0 = _mm256_add_epi64(key0, step);
      key1 = _mm256_add_epi64(key1, step);
      sum0 = _mm256_add_epi64(sum0, mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), key0));
      sum1 = _mm256_add_epi64(sum1, mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)), key1));
    }
    const __m256i sums = _mm256_add_epi64(mixed(sum0, _mm256_add_epi64(seeds, multiples(xxh::kP2, 1))),
                                          mixed(sum1, _mm256_add_epi64(seeds, multiples(xxh::kP2, 5))));
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return finish_sum(seed + static_cast<uint64_t>(_mm_cvtsi128_si64(half)) + static_cast<uint64_t>(_mm_extract_epi64(half, 1)));
  }

  static __m256i multiples(uint64_t p, uint64_t first) {
    const auto of = [p](uint64_t n) { return static_cast<long long>(n * p); };
    return _mm256_setr_epi64x(of(first), of(first + 1), of(first + 2), of(first + 3));
  }

  // What four words add to their lanes: the product of the halves of each with its key, and its neighbour.
  static __m256i mixed(__m256i words, __m256i keys) {
    const __m256i x = _mm256_xor_si256(words, keys);
    return _mm256_add_epi64(_mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)), _mm256_shuffle_epi32(words, 0x4E));
  }

  // Reads up to 31 bytes past n: h is scratch with that much room.
  static uint32_t tail_bits(const uint8_t* h, uint32_t n) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i sum = zero;
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
      sum = _mm256_add_epi64(sum, _mm256_sad_epu8(at_most_last(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i))), zero));
    const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
                                            27, 28, 29, 30, 31);
    const __m256i inside = _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(n - i)), places);
    const __m256i last = at_most_last(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i)));
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_and_si256(last, inside), zero));
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return W::kLast * n - static_cast<uint32_t>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
  }

  // An entry that differs behind its leading word has no tail, like one that differs in the last bit of it.
  static __m256i at_most_last(__m256i h) {
    if constexpr (W::kWide) return _mm256_min_epu8(h, _mm256_set1_epi8(W::kLast));
    else return h;
  }

  // Reads up to 31 bytes past n: h is scratch with that much room.
  static uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
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

  static unsigned select(uint64_t x, unsigned k) { return static_cast<unsigned>(_tzcnt_u64(_pdep_u64(uint64_t{1} << k, x))); }

  static uint32_t expand_highs(const HighParts& highs, uint32_t count, uint64_t* out, uint32_t* at) {
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(highs.shift));
    uint32_t i = 0;
    for (; *at + 8 <= highs.bits && i + 8 <= count; *at += 8) {
      const uint8_t byte = highs.p[*at / 8];
      const __m128i places = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kBitPlaces.of[byte]));
      const __m256i before = _mm256_set1_epi64x(static_cast<long long>(highs.before + *at - i));
      const __m256i first = _mm256_add_epi64(before, _mm256_cvtepu8_epi64(places));
      const __m256i last = _mm256_add_epi64(before, _mm256_cvtepu8_epi64(_mm_srli_si128(places, 4)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_sll_epi64(first, shift));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 4), _mm256_sll_epi64(last, shift));
      i += static_cast<uint32_t>(__builtin_popcount(byte));
    }
    return i;
  }

  static uint32_t add_lows(const LowParts& lows, uint32_t count, uint64_t* out) {
    if (lows.bits > 57) return 0;  // what a load of eight bytes holds of one, wherever it begins
    const auto all = [](uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    const uint64_t bits = lows.bits;
    const __m256i seven = all(7), mask = all((uint64_t{1} << bits) - 1), step = all(4 * bits);
    __m256i at = _mm256_add_epi64(all(lows.at), _mm256_setr_epi64x(0, static_cast<long long>(bits), static_cast<long long>(2 * bits),
                                                                   static_cast<long long>(3 * bits)));
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4, at = _mm256_add_epi64(at, step)) {
      const __m256i words = _mm256_i64gather_epi64(reinterpret_cast<const long long*>(lows.block), _mm256_srli_epi64(at, 3), 1);
      const __m256i low = _mm256_and_si256(_mm256_srlv_epi64(words, _mm256_and_si256(at, seven)), mask);
      __m256i* const to = reinterpret_cast<__m256i*>(out + i);
      _mm256_storeu_si256(to, _mm256_or_si256(_mm256_loadu_si256(to), _mm256_slli_epi64(low, kUnused<W>)));
    }
    return i;
  }

  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    const __m256i flip = _mm256_set1_epi64x(INT64_MIN), bound = _mm256_xor_si256(_mm256_set1_epi64x(static_cast<long long>(target)), flip);
    const __m256i places = _mm256_setr_epi64x(0, 1, 2, 3);
    uint64_t below = 0;
    for (uint64_t i = 0; i < n; i += 16) {
      // Without a branch on where the place is.
      unsigned smaller = 0;
      for (uint64_t j = i; j < i + 16; j += 4) {
        const __m256i live = _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n - j)), places);
        const __m256i key = _mm256_xor_si256(_mm256_maskload_epi64(reinterpret_cast<const long long*>(keys + j), live), flip);
        const __m256i lower = _mm256_and_si256(live, _mm256_cmpgt_epi64(bound, key));
        smaller += static_cast<unsigned>(__builtin_popcount(static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(lower)))));
      }
      below += smaller;
      if (smaller < 16) break;
    }
    return below;
  }

  static size_t near(const uint64_t* keys, size_t n, uint64_t query, unsigned radius, uint32_t* places) {
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
};

}  // namespace
}  // namespace fpstore
