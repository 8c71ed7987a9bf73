// Units of texts and the hashes of their shingles by AVX-512.
#pragma once
#include "isa/avx512.hpp"
#include "text/shingles_avx2.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

struct EightWords {
  using Words = __m512i;
  using Mask = __mmask8;
  static constexpr size_t kLanes = 8;

  static Words all(uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  static Words load(const uint64_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint64_t* p, Words x) { _mm512_storeu_si512(p, x); }
  static Words add(Words a, Words b) { return _mm512_add_epi64(a, b); }
  static Words sub(Words a, Words b) { return _mm512_sub_epi64(a, b); }
  static Words bit_and(Words a, Words b) { return _mm512_and_si512(a, b); }
  static Words bit_xor(Words a, Words b) { return _mm512_xor_si512(a, b); }
  static Words times(Words x, uint64_t factor) { return _mm512_mullo_epi64(x, all(factor)); }
  static Words times_low(Words x, uint64_t factor) { return times(x, factor); }
  template <int kBits>
  static Words rotl(Words x) {
    return _mm512_rol_epi64(x, kBits);
  }
  template <int kBits>
  static Words right(Words x) {
    return _mm512_srli_epi64(x, kBits);
  }
  static Mask at_least(Words x, uint64_t bound) { return _mm512_cmpge_epu64_mask(x, all(bound)); }
  static bool any(Mask m) { return bits_of(m) != 0; }
  static Words choose(Mask m, Words a, Words b) { return _mm512_mask_mov_epi64(b, m, a); }

  // The word at each of eight places, and the four words.
  static Words load_one(const uint8_t* text, const uint64_t* places) {
    const auto at = [&](unsigned i) { return static_cast<long long>(load64(text + places[i])); };
    return _mm512_setr_epi64(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  }
  static void load_four(const uint8_t* text, const uint64_t* places, Words* words) {
    const auto at = [&](unsigned i) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + places[i]));
    };
    const auto two = [&](unsigned i) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(at(i)), at(i + 4), 1);
    };
    const Words a = two(0), b = two(1), c = two(2), d = two(3);
    const Words low = _mm512_unpacklo_epi64(a, b), low2 = _mm512_unpacklo_epi64(c, d);
    const Words high = _mm512_unpackhi_epi64(a, b), high2 = _mm512_unpackhi_epi64(c, d);
    const Words first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
                second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    words[0] = _mm512_permutex2var_epi64(low, first, low2);
    words[1] = _mm512_permutex2var_epi64(high, first, high2);
    words[2] = _mm512_permutex2var_epi64(low, second, low2);
    words[3] = _mm512_permutex2var_epi64(high, second, high2);
  }
};

struct Avx512Text : Avx2Text {
  static size_t put_ascii(const AsciiRun& run, unsigned* in_unit, uint8_t* out) {
    const __m512i low = _mm512_loadu_si512(run.table), high = _mm512_loadu_si512(run.table + 64);
    const __m512i space = _mm512_set1_epi8(' '),
                  ignored = _mm512_set1_epi8(static_cast<char>(kIgnoredByte));
    uint64_t after_space = !*in_unit;
    uint8_t* to = out;
    for (size_t i = 0; i < run.size; i += 64) {
      size_t n = run.size - i < 64 ? run.size - i : 64;
      const __m512i text = _mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - n), run.text + i);
      __m512i x = _mm512_permutex2var_epi8(low, text, high);
      uint64_t live = ~uint64_t{0} >> (64 - n);
      const uint64_t stays = _mm512_mask_cmplt_epu8_mask(live, x, ignored);
      if (FPSTORE_UNLIKELY(stays != live)) {
        x = _mm512_maskz_compress_epi8(stays, x);
        n = static_cast<size_t>(__builtin_popcountll(stays));
        if (!n) continue;
        live = ~uint64_t{0} >> (64 - n);
      }
      const uint64_t spaces = _mm512_mask_cmpeq_epi8_mask(live, x, space);
      const uint64_t kept = live & ~(spaces & (spaces << 1 | after_space));
      after_space = spaces >> (n - 1);
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(kept, x));
      to += __builtin_popcountll(kept);
    }
    *in_unit = !after_space;
    return static_cast<size_t>(to - out);
  }

  static size_t word_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    const __m512i space = _mm512_set1_epi8(' ');
    return find<1>(search, starts, room,
                   [&](__m512i x) { return _mm512_cmpeq_epi8_mask(x, space); });
  }
  static size_t char_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    const __m512i last = _mm512_set1_epi8(-65);  // of those that continue a character
    return find<0>(search, starts, room,
                   [&](__m512i x) { return _mm512_cmpgt_epi8_mask(x, last); });
  }

  static void hash_shingles(const Shingles& shingles, size_t n, uint64_t seed, uint64_t* hashes) {
    ShingleHashes<EightWords>::hash(shingles, n, seed, hashes);
  }

 private:
  template <size_t kBefore, class StartsOf>
  static size_t find(UnitSearch* search, uint64_t* starts, size_t room, StartsOf starts_of) {
    alignas(64) static constexpr uint8_t kPlaces[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i places = _mm512_load_si512(kPlaces);
    size_t count = 0, at = search->at;
    for (; at < search->end && count + kStartsBehind <= room; at += 64) {
      uint64_t found = starts_of(_mm512_loadu_si512(search->text + at - kBefore));
      const size_t left = search->end - at;
      if (FPSTORE_UNLIKELY(left < 64)) found &= (uint64_t{1} << left) - 1;
      alignas(64) uint8_t in_block[64];
      _mm512_store_si512(in_block, _mm512_maskz_compress_epi8(found, places));
      const auto n = static_cast<unsigned>(__builtin_popcountll(found));
      const __m512i first = EightWords::all(at);
      uint64_t* const out = starts + count;
      count += n;
      // Of words there are seldom more than sixteen: the branch is seldom a surprise.
      for (unsigned k = 0; k < n; k += 16)
        for (unsigned j = k; j < k + 16; j += 8)
          _mm512_storeu_si512(
              out + j, _mm512_add_epi64(first, _mm512_cvtepu8_epi64(_mm_loadl_epi64(
                                                   reinterpret_cast<__m128i*>(in_block + j)))));
    }
    search->at = at < search->end ? at : search->end;
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
