// Near tags with AVX-512. Bits of words of 16 are counted by an instruction that not all machines have which have the rest of the set
// (VPOPCNTW); a shuffle is as fast where memory is what is waited for.
#pragma once
#include "columns/near_tags_avx2.hpp"

namespace fpstore {
namespace {

struct Avx512Tags : Avx2Tags {
  // Bytes behind n that a load reaches are masked off, and so are not read.
  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask, unsigned limit, uint16_t* places) {
    const __m512i base = _mm512_set1_epi16(static_cast<short>(query));
    const __m512i low = _mm512_set1_epi16(static_cast<short>(mask & 0x0F0F));
    const __m512i high = _mm512_set1_epi16(static_cast<short>(mask >> 4 & 0x0F0F));
    const __m512i bits = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i ones = _mm512_set1_epi8(1), bound = _mm512_set1_epi16(static_cast<short>(limit));
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 32) {
      const __mmask32 live = n - i >= 32 ? ~__mmask32{0} : (__mmask32{1} << (n - i)) - 1;
      const __m512i x = _mm512_xor_si512(_mm512_maskz_loadu_epi16(live, tags + 2 * i), base);
      const __m512i bytes = _mm512_add_epi8(_mm512_shuffle_epi8(bits, _mm512_and_si512(x, low)),
                                            _mm512_shuffle_epi8(bits, _mm512_and_si512(_mm512_srli_epi16(x, 4), high)));
      uint32_t hits = _mm512_mask_cmple_epu16_mask(live, _mm512_maddubs_epi16(bytes, ones), bound);
      for (; hits; hits &= hits - 1) places[count++] = static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctz(hits)));
    }
    return count;
  }
};

}  // namespace
}  // namespace fpstore
