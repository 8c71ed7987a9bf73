// Near tags with AVX2: 32 at a time, the bits of each half byte counted by a shuffle.
#pragma once
#include <immintrin.h>
#include "columns/near_tags.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// What the bits of 16 tags are counted with; the mask is part of what takes half bytes apart.
struct TagCounter {
  __m256i query, low, high, bits, ones;

  TagCounter(unsigned tag, unsigned mask)
      : query(_mm256_set1_epi16(static_cast<short>(tag))),
        low(_mm256_set1_epi16(static_cast<short>(mask & 0x0F0F))),
        high(_mm256_set1_epi16(static_cast<short>(mask >> 4 & 0x0F0F))),
        bits(_mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4))),
        ones(_mm256_set1_epi8(1)) {}

  __m256i distances(const uint8_t* tags) const {
    const __m256i x =
        _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tags)), query);
    const __m256i bytes =
        _mm256_add_epi8(_mm256_shuffle_epi8(bits, _mm256_and_si256(x, low)),
                        _mm256_shuffle_epi8(bits, _mm256_and_si256(_mm256_srli_epi16(x, 4), high)));
    return _mm256_maddubs_epi16(bytes, ones);
  }
};

// Which of 32 tags differ from that of a query in at most one bit.
struct SingleBit {
  __m256i mask, ones = _mm256_set1_epi16(-1), none = _mm256_setzero_si256();

  explicit SingleBit(unsigned live) : mask(_mm256_set1_epi16(static_cast<short>(live))) {}

  __m256i within_radius(const uint8_t* tags, __m256i query) const {
    const __m256i x = _mm256_and_si256(
        _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tags)), query), mask);
    return _mm256_cmpeq_epi16(_mm256_and_si256(x, _mm256_add_epi16(x, ones)), none);
  }
  uint32_t hits(const uint8_t* tags, __m256i query) const {
    // Packing takes halves of both in turn.
    const __m256i both =
        _mm256_packs_epi16(within_radius(tags, query), within_radius(tags + 32, query));
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(both, 0xD8)));
  }
};

struct Avx2Tags : PortableTags {
  static unsigned near_in_a_bit(const uint8_t* tags, unsigned n, unsigned query, unsigned mask,
                                uint16_t* places) {
    const SingleBit single(mask);
    const __m256i wanted = _mm256_set1_epi16(static_cast<short>(query));
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 32) {
      uint32_t hits = single.hits(tags + 2 * i, wanted);
      if (n - i < 32) hits &= (uint32_t{1} << (n - i)) - 1;
      for (; hits; hits &= hits - 1)
        places[count++] = static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctz(hits)));
    }
    return count;
  }

  // The first 32 tags that a row is compared with begin at a multiple of 32, so that successive
  // rows take as many steps.
  static unsigned pairs_in_a_bit(const uint8_t* tags, unsigned n, unsigned* row, unsigned mask,
                                 uint16_t* left, uint16_t* right, unsigned room) {
    const SingleBit single(mask);
    unsigned count = 0, i = *row;
    for (; i < n && room - count >= n - i; ++i) {
      const __m256i wanted = _mm256_set1_epi16(static_cast<short>(load16(tags + 2 * i)));
      uint32_t live = ~uint32_t{0} << ((i + 1) % 32);
      for (unsigned j = (i + 1) / 32 * 32; j < n; j += 32, live = ~uint32_t{0}) {
        uint32_t hits = single.hits(tags + 2 * j, wanted) & live;
        if (n - j < 32) hits &= (uint32_t{1} << (n - j)) - 1;
        for (; FPSTORE_UNLIKELY(hits); hits &= hits - 1) {
          left[count] = static_cast<uint16_t>(i);
          right[count++] = static_cast<uint16_t>(j + static_cast<unsigned>(__builtin_ctz(hits)));
        }
      }
    }
    *row = i;
    return count;
  }

  template <class Isa>
  static unsigned near_pairs(const uint8_t* tags, unsigned n, unsigned* row, unsigned mask,
                             unsigned limit, uint16_t* left, uint16_t* right, unsigned room) {
    if (limit == 1) return Isa::pairs_in_a_bit(tags, n, row, mask, left, right, room);
    return PortableTags::near_pairs<Isa>(tags, n, row, mask, limit, left, right, room);
  }

  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask,
                            unsigned limit, uint16_t* places) {
    if (limit == 1) return near_in_a_bit(tags, n, query, mask, places);
    const TagCounter counter(query, mask);
    const __m256i bound = _mm256_set1_epi16(static_cast<short>(limit));
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 32) {
      const __m256i far0 = _mm256_cmpgt_epi16(counter.distances(tags + 2 * i), bound);
      const __m256i far1 = _mm256_cmpgt_epi16(counter.distances(tags + 2 * i + 32), bound);
      // Packing takes halves of both in turn.
      const __m256i far = _mm256_permute4x64_epi64(_mm256_packs_epi16(far0, far1), 0xD8);
      uint32_t hits = ~static_cast<uint32_t>(_mm256_movemask_epi8(far));
      if (n - i < 32) hits &= (uint32_t{1} << (n - i)) - 1;
      for (; hits; hits &= hits - 1)
        places[count++] = static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctz(hits)));
    }
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
