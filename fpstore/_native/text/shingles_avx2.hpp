// Units of texts and the hashes of their shingles by AVX2.
#pragma once
#include <immintrin.h>

#include "text/shingle_hashes.hpp"
#include "text/shingles.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

struct FourWords {
  using Words = __m256i;
  using Mask = __m256i;
  static constexpr size_t kLanes = 4;

  static Words all(uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); }
  static Words load(const uint64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store(uint64_t* p, Words x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static Words add(Words a, Words b) { return _mm256_add_epi64(a, b); }
  static Words sub(Words a, Words b) { return _mm256_sub_epi64(a, b); }
  static Words bit_and(Words a, Words b) { return _mm256_and_si256(a, b); }
  static Words bit_xor(Words a, Words b) { return _mm256_xor_si256(a, b); }
  static Words times(Words x, uint64_t factor) {
    const Words high = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), all(factor));
    return _mm256_add_epi64(times_low(x, factor), _mm256_slli_epi64(high, 32));
  }
  // Of the lower half of each word.
  static Words times_low(Words x, uint64_t factor) {
    const Words high = _mm256_mul_epu32(x, all(factor >> 32));
    return _mm256_add_epi64(_mm256_mul_epu32(x, all(factor)), _mm256_slli_epi64(high, 32));
  }
  template <int kBits>
  static Words rotl(Words x) {
    return _mm256_or_si256(_mm256_slli_epi64(x, kBits), _mm256_srli_epi64(x, 64 - kBits));
  }
  template <int kBits>
  static Words right(Words x) {
    return _mm256_srli_epi64(x, kBits);
  }
  // Of words and bounds below 2^63.
  static Mask at_least(Words x, uint64_t bound) { return _mm256_cmpgt_epi64(x, all(bound - 1)); }
  static bool any(Mask m) { return !_mm256_testz_si256(m, m); }
  static Words choose(Mask m, Words a, Words b) { return _mm256_blendv_epi8(b, a, m); }

  // The word at each of four places, and the four words.
  static Words load_one(const uint8_t* text, const uint64_t* places) {
    const auto at = [&](unsigned i) { return static_cast<long long>(load64(text + places[i])); };
    return _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
  }
  static void load_four(const uint8_t* text, const uint64_t* places, Words* words) {
    const auto at = [&](unsigned i) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + places[i]));
    };
    const Words a = at(0), b = at(1), c = at(2), d = at(3);
    const Words low = _mm256_unpacklo_epi64(a, b), low2 = _mm256_unpacklo_epi64(c, d);
    const Words high = _mm256_unpackhi_epi64(a, b), high2 = _mm256_unpackhi_epi64(c, d);
    words[0] = _mm256_permute2x128_si256(low, low2, 0x20);
    words[1] = _mm256_permute2x128_si256(high, high2, 0x20);
    words[2] = _mm256_permute2x128_si256(low, low2, 0x31);
    words[3] = _mm256_permute2x128_si256(high, high2, 0x31);
  }
};

// The places of the set bits of each byte, ascending, one to a byte.
struct KeptPlaces {
  uint64_t of[256] = {};
  constexpr KeptPlaces() {
    for (unsigned byte = 0; byte < 256; ++byte)
      for (unsigned bit = 0, set = 0; bit < 8; ++bit)
        if (byte >> bit & 1) of[byte] |= uint64_t{bit} << 8 * set++;
  }
};
constexpr KeptPlaces kKeptPlaces;

struct Avx2Text : PortableText {
  static size_t put_ascii(const AsciiRun& run, unsigned* in_unit, uint8_t* out) {
    __m256i rows[8];  // of the table, 16 bytes each
    for (unsigned i = 0; i < 8; ++i)
      rows[i] = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(run.table + 16 * i)));
    const __m256i space = _mm256_set1_epi8(' '),
                  ignored = _mm256_set1_epi8(static_cast<char>(kIgnoredByte));
    uint32_t after_space = !*in_unit;
    uint8_t* to = out;
    size_t i = 0;
    for (; i + 32 <= run.size; i += 32) {
      const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(run.text + i));
      __m256i x = _mm256_setzero_si256();
      for (unsigned k = 0; k < 8; ++k) {
        // The place in this row; of bytes of others, the highest bit is set, which gives 0.
        const __m256i row = _mm256_xor_si256(text, _mm256_set1_epi8(static_cast<char>(16 * k)));
        const __m256i place = _mm256_adds_epu8(row, _mm256_set1_epi8(0x70));
        x = _mm256_or_si256(x, _mm256_shuffle_epi8(rows[k], place));
      }
      const __m256i gone = _mm256_cmpeq_epi8(_mm256_max_epu8(x, ignored), x);
      if (FPSTORE_UNLIKELY(!_mm256_testz_si256(gone, gone))) {
        unsigned before = !after_space;
        to += PortableText::put_ascii({run.table, run.text + i, 32}, &before, to);
        after_space = !before;
        continue;
      }
      const auto spaces = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, space)));
      const uint32_t kept = ~(spaces & (spaces << 1 | after_space));
      after_space = spaces >> 31;
      if (kept == UINT32_MAX) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
        to += 32;
        continue;
      }
      uint64_t words[4];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), x);
      for (unsigned k = 0; k < 4; ++k) {
        const uint32_t byte = kept >> 8 * k & 0xFF;
        const __m128i places = _mm_cvtsi64_si128(static_cast<long long>(kKeptPlaces.of[byte]));
        const __m128i word = _mm_cvtsi64_si128(static_cast<long long>(words[k]));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(word, places));
        to += __builtin_popcount(byte);
      }
    }
    *in_unit = !after_space;
    if (i < run.size)
      to += PortableText::put_ascii({run.table, run.text + i, run.size - i}, in_unit, to);
    return static_cast<size_t>(to - out);
  }

  static size_t word_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    const __m256i space = _mm256_set1_epi8(' ');
    return find<1>(search, starts, room, [&](__m256i x) { return _mm256_cmpeq_epi8(x, space); });
  }
  // A byte that continues a character is below 0xC0, as a signed one below -64.
  static size_t char_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    const __m256i last = _mm256_set1_epi8(-65);
    return find<0>(search, starts, room, [&](__m256i x) { return _mm256_cmpgt_epi8(x, last); });
  }

  static void hash_shingles(const Shingles& shingles, size_t n, uint64_t seed, uint64_t* hashes) {
    ShingleHashes<FourWords>::hash(shingles, n, seed, hashes);
  }

 private:
  template <size_t kBefore, class StartsOf>
  static size_t find(UnitSearch* search, uint64_t* starts, size_t room, StartsOf starts_of) {
    size_t count = 0, at = search->at;
    const __m256i four = _mm256_set1_epi64x(4);
    for (; at < search->end && count + kStartsBehind <= room; at += 32) {
      uint32_t found = static_cast<uint32_t>(_mm256_movemask_epi8(starts_of(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(search->text + at - kBefore)))));
      const size_t left = search->end - at;
      if (FPSTORE_UNLIKELY(left < 32)) found &= (uint32_t{1} << left) - 1;
      uint64_t* const out = starts + count;
      if (found == UINT32_MAX) {
        __m256i place = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(at)),
                                         _mm256_setr_epi64x(0, 1, 2, 3));
        for (unsigned k = 0; k < 32; k += 4, place = _mm256_add_epi64(place, four))
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + k), place);
        count += 32;
        continue;
      }
      count += static_cast<unsigned>(__builtin_popcount(found));
      // Four at a time: the branch is seldom a surprise. What is written too much is overwritten.
      for (unsigned k = 0; found; k += 4)
        for (unsigned j = 0; j < 4; ++j, found = _blsr_u32(found))
          out[k + j] = at + _tzcnt_u32(found);
    }
    search->at = at < search->end ? at : search->end;
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
