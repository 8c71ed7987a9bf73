// AVX2 and BMI: the compiler's own vectors, and explicit ones where codes and keys are searched.
#pragma once
#include <immintrin.h>
#include "isa/portable.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class Width_>
struct Avx2 : Portable<Width_> {
  using W = Width_;

  static constexpr unsigned kExpandShared = 4;
  static constexpr size_t kVectorBytes = 32, kMinimaVectors = 4;

  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
    const auto all = [](uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    const __m256i step = all(kSumStep), seeds = all(seed);
    __m256i key0 = _mm256_add_epi64(seeds, multiples(xxh::kP1, 1)),
            key1 = _mm256_add_epi64(seeds, multiples(xxh::kP1, 5));
    const __m256i unsummed = _mm256_setr_epi64x(kUnsummed, 0, 0, 0);
    __m256i sum0 = mixed(
        _mm256_andnot_si256(unsummed, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
        key0);
    __m256i sum1 = mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)), key1);
    const uint8_t* const end = p + bytes;
    for (p += 64; p < end; p += 64) {
      key0 = _mm256_add_epi64(key0, step);
      key1 = _mm256_add_epi64(key1, step);
      sum0 = _mm256_add_epi64(sum0,
                              mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), key0));
      sum1 = _mm256_add_epi64(
          sum1, mixed(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)), key1));
    }
    const __m256i sums =
        _mm256_add_epi64(mixed(sum0, _mm256_add_epi64(seeds, multiples(xxh::kP2, 1))),
                         mixed(sum1, _mm256_add_epi64(seeds, multiples(xxh::kP2, 5))));
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return finish_sum(seed + static_cast<uint64_t>(_mm_cvtsi128_si64(half)) +
                      static_cast<uint64_t>(_mm_extract_epi64(half, 1)));
  }

  static __m256i multiples(uint64_t p, uint64_t first) {
    const auto of = [p](uint64_t n) { return static_cast<long long>(n * p); };
    return _mm256_setr_epi64x(of(first), of(first + 1), of(first + 2), of(first + 3));
  }

  // What four words add to their lanes: the product of the halves of each with its key, and its
  // neighbour.
  static __m256i mixed(__m256i words, __m256i keys) {
    const __m256i x = _mm256_xor_si256(words, keys);
    return _mm256_add_epi64(_mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)),
                            _mm256_shuffle_epi32(words, 0x4E));
  }

  // Reads up to 31 bytes past n: h is scratch with that much room.
  static uint32_t tail_bits(const uint8_t* h, uint32_t n) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i sum = zero;
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
      sum = _mm256_add_epi64(
          sum,
          _mm256_sad_epu8(at_most_last(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i))),
                          zero));
    const __m256i places =
        _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                         21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    const __m256i inside = _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(n - i)), places);
    const __m256i last = at_most_last(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i)));
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_and_si256(last, inside), zero));
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return W::kLast * n -
           static_cast<uint32_t>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
  }

  // An entry that differs behind its leading word has no tail, like one that differs in the last
  // bit of it.
  static __m256i at_most_last(__m256i h) {
    if constexpr (W::kWide)
      return _mm256_min_epu8(h, _mm256_set1_epi8(W::kLast));
    else
      return h;
  }

  // Reads up to 31 bytes past n: h is scratch with that much room.
  static uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
    const __m256i bound = _mm256_set1_epi8(static_cast<char>(limit));
    for (; from < n; from += 32) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + from));
      const uint32_t hits = static_cast<uint32_t>(
          _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(x, bound), x)));
      if (hits) {
        const uint32_t at = from + static_cast<uint32_t>(__builtin_ctz(hits));
        return at < n ? at : n;
      }
    }
    return n;
  }

  static unsigned select(uint64_t x, unsigned k) {
    return static_cast<unsigned>(_tzcnt_u64(_pdep_u64(uint64_t{1} << k, x)));
  }

  static uint32_t expand_highs(const HighParts& highs, uint16_t* rises) {
    uint32_t i = 0;
    for (uint32_t at = 0; at < highs.bits; at += 8) {
      unsigned byte = highs.p[at / 8];
      if (FPSTORE_UNLIKELY(highs.bits - at < 8)) byte &= (1u << (highs.bits - at)) - 1;
      const __m128i places = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kBitPlaces.of[byte]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rises + i),
                       _mm_add_epi16(places, _mm_set1_epi16(static_cast<short>(at - i))));
      i += static_cast<uint32_t>(__builtin_popcount(byte));
    }
    return i;
  }

  // Two low parts lie in 16 bytes, wherever the first begins. Where that is behind the block, there
  // is no such entry.
  static void join_parts(const HighParts& highs, const uint16_t* rises, const LowParts& lows,
                         uint32_t count, uint64_t* out) {
    const unsigned bits = lows.bits, odd = lows.at & 7;
    const auto all = [](uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
    const __m256i mask = all((uint64_t{1} << bits) - 1), before = all(highs.before);
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(highs.shift));
    uint32_t from[4];  // the byte from which on each pair is taken
    __m256i places[2], shifts[2];
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned first = odd + half * 4 * bits;
      from[2 * half] = first >> 3;
      from[2 * half + 1] = (first + 2 * bits) >> 3;
      const auto behind = [&](unsigned k) {
        return static_cast<long long>(((first + (k + 1) * bits) >> 3) - ((first + k * bits) >> 3));
      };
      const __m256i bytes = _mm256_setr_epi64x(0, behind(0), 0, behind(2));
      const __m256i spread = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8));
      places[half] = _mm256_add_epi8(_mm256_shuffle_epi8(bytes, spread), all(0x0706050403020100));
      shifts[half] = _mm256_and_si256(
          all(7), _mm256_setr_epi64x(first, first + bits, first + 2 * bits, first + 3 * bits));
    }
    const uint32_t last = lows.limit - 16;  // from which on 16 bytes can be loaded
    uint32_t at = lows.at >> 3;
    const auto pair = [&](unsigned k) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(
          lows.block + (at + from[k] < last ? at + from[k] : last)));
    };
    for (uint32_t i = 0; i < count; i += 8, at += bits) {
      for (unsigned half = 0; half < 2; ++half) {
        const __m256i bytes =
            _mm256_inserti128_si256(_mm256_castsi128_si256(pair(2 * half)), pair(2 * half + 1), 1);
        const __m256i words = _mm256_shuffle_epi8(bytes, places[half]);
        const __m256i low = _mm256_and_si256(_mm256_srlv_epi64(words, shifts[half]), mask);
        const __m128i rise =
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rises + i + 4 * half));
        const __m256i high =
            _mm256_sll_epi64(_mm256_add_epi64(_mm256_cvtepu16_epi64(rise), before), shift);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 4 * half),
                            _mm256_or_si256(high, _mm256_slli_epi64(low, kUnused<W>)));
      }
    }
  }

  // Distances of four words to one, by tables of the bits of half a byte.
  static __m256i distances(const uint64_t* values, __m256i base) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i bits =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i x =
        _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)), base);
    const __m256i halves =
        _mm256_add_epi8(_mm256_shuffle_epi8(bits, _mm256_and_si256(x, low)),
                        _mm256_shuffle_epi8(bits, _mm256_and_si256(_mm256_srli_epi16(x, 4), low)));
    return _mm256_sad_epu8(halves, _mm256_setzero_si256());
  }

  // Whether one of 16 words is as near as the bound, which is one more than the radius.
  static bool any_of_16_near(const uint64_t* values, __m256i base, __m256i bound) {
    const __m256i d0 = distances(values, base), d1 = distances(values + 4, base);
    const __m256i d2 = distances(values + 8, base), d3 = distances(values + 12, base);
    const __m256i least = _mm256_min_epu16(_mm256_min_epu16(d0, d1), _mm256_min_epu16(d2, d3));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi64(bound, least)) != 0;
  }

  // What lies past the entries is scratch, told apart only when something is near.
  static bool match_values(const ScanQuery<W>& q, const LeadingWords& entries) {
    const __m256i base = _mm256_set1_epi64x(static_cast<long long>(leading_word(q.permuted)));
    const __m256i bound = _mm256_set1_epi64x(static_cast<long long>(q.radius) + 1);
    for (uint32_t i = 0; i < entries.n; i += 16)
      if (FPSTORE_UNLIKELY(any_of_16_near(entries.values + i, base, bound)) &&
          !Portable<W>::match_values(q, Portable<W>::some_of(entries, i)))
        return false;
    return true;
  }

  static bool any_near(const uint64_t* values, uint64_t base, unsigned radius) {
    static_assert(Portable<W>::kAtOnce == 8);
    const __m256i query = _mm256_set1_epi64x(static_cast<long long>(base)),
                  bound = _mm256_set1_epi64x(static_cast<long long>(radius) + 1);
    const __m256i least = _mm256_min_epu16(distances(values, query), distances(values + 4, query));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi64(bound, least)) != 0;
  }

  static bool filter_values(const Emitter<W>& out, const Item<W>& item, const LeadingWords& entries,
                            uint32_t from) {
    const __m256i base = _mm256_set1_epi64x(static_cast<long long>(leading_word(item.base)));
    const __m256i bound = _mm256_set1_epi64x(static_cast<long long>(out.options.radius) + 1);
    for (uint32_t i = from; i < entries.n && entries.values[i] <= item.last; i += 16)
      if (FPSTORE_UNLIKELY(any_of_16_near(entries.values + i, base, bound)) &&
          !Portable<W>::filter_some(out, item, entries, i, i + 16))
        return false;
    return true;
  }

  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    const __m256i flip = _mm256_set1_epi64x(INT64_MIN),
                  bound =
                      _mm256_xor_si256(_mm256_set1_epi64x(static_cast<long long>(target)), flip);
    const __m256i places = _mm256_setr_epi64x(0, 1, 2, 3);
    uint64_t below = 0;
    for (uint64_t i = 0; i < n; i += 16) {
      // Without a branch on where the place is.
      unsigned smaller = 0;
      for (uint64_t j = i; j < i + 16; j += 4) {
        const __m256i live =
            _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n - j)), places);
        const __m256i key = _mm256_xor_si256(
            _mm256_maskload_epi64(reinterpret_cast<const long long*>(keys + j), live), flip);
        const __m256i lower = _mm256_and_si256(live, _mm256_cmpgt_epi64(bound, key));
        smaller += static_cast<unsigned>(__builtin_popcount(
            static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(lower)))));
      }
      below += smaller;
      if (smaller < 16) break;
    }
    return below;
  }

  static size_t within_radius(const uint64_t* keys, size_t n, uint64_t query, unsigned radius,
                              uint32_t* places) {
    const __m256i base = _mm256_set1_epi64x(static_cast<long long>(query));
    const __m256i bound = _mm256_set1_epi64x(static_cast<long long>(radius) + 1);
    size_t count = 0, i = 0;
    for (; i + 4 <= n; i += 4) {
      const __m256i distance = distances(keys + i, base);
      unsigned hits = static_cast<unsigned>(
          _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(bound, distance))));
      for (; hits; hits &= hits - 1)
        places[count++] = static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(hits));
    }
    for (; i < n; ++i)
      if (static_cast<unsigned>(__builtin_popcountll(keys[i] ^ query)) <= radius)
        places[count++] = static_cast<uint32_t>(i);
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
