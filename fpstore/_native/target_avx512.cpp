// The kernels for AVX-512 machines (F, BW, DQ, VL, CD, VPOPCNTDQ, VBMI, VBMI2).
#include <immintrin.h>

#include "kernels.hpp"
#include "xxh64.hpp"

namespace fpstore {
namespace {

// From how many expected entries a prefix on, comparing all entries of a block beats looking for the prefix in its codes.
constexpr uint64_t kExpandFrom = 8;

#include "codec.inc"
#include "probe.inc"

inline uint32_t tail_bits(const uint8_t* h, uint32_t n) {
  __m512i sum = _mm512_setzero_si512();
  for (uint32_t i = 0; i < n; i += 64) {
    const __mmask64 live = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
    sum = _mm512_add_epi64(sum, _mm512_sad_epu8(_mm512_maskz_loadu_epi8(live, h + i), _mm512_setzero_si512()));
  }
  return 63 * n - static_cast<uint32_t>(_mm512_reduce_add_epi64(sum));
}

// Eight entries at a time. Their tails take at most 8 x 63 bits, so one 64-byte load holds them all and a byte permutation brings
// each to its lane, most significant byte first. An entry is what it keeps of its predecessor ORed with its tail, and
// that composition is associative: (k1, v1) then (k2, v2) is (k1 & k2, (v1 & k2) | v2), so three doubling steps turn eight of
// them into functions of the last entry before. Loads are masked at the end of the tails.
inline uint64_t expand(const uint8_t* p, uint32_t at, const uint8_t* h, uint32_t n, uint64_t previous, uint64_t* out) {
  const __m512i up1 = _mm512_setr_epi64(0, 0, 1, 2, 3, 4, 5, 6);
  const __m512i up2 = _mm512_setr_epi64(0, 0, 0, 1, 2, 3, 4, 5);
  const __m512i up4 = _mm512_setr_epi64(0, 0, 0, 0, 0, 1, 2, 3);
  const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8));
  const __m512i reversed = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0));
  const __m512i ones = _mm512_set1_epi64(-1);
  const __m512i top = _mm512_set1_epi64(INT64_MIN);
  const __m512i seven = _mm512_set1_epi64(7);
  const __m128i c63 = _mm_set1_epi16(63);
  __m512i e = _mm512_set1_epi64(static_cast<long long>(previous));
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(h + i));
    if (__builtin_expect(_mm_movemask_epi8(_mm_cmplt_epi8(codes, _mm_set1_epi8(6))) & 0xFF, 0)) {
      // A tail of more than 57 bits may reach into a ninth byte.
      const uint64_t before = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(e)));
      e = _mm512_set1_epi64(static_cast<long long>(expand_scalar(p, at, h + i, 8, before, out + i)));
      at += tail_bits_scalar(h + i, 8);
      continue;
    }
    const __m128i length = _mm_sub_epi16(c63, _mm_cvtepu8_epi16(codes));
    __m128i sum = _mm_add_epi16(length, _mm_slli_si128(length, 2));
    sum = _mm_add_epi16(sum, _mm_slli_si128(sum, 4));
    sum = _mm_add_epi16(sum, _mm_slli_si128(sum, 8));
    const uint32_t total = static_cast<uint32_t>(_mm_extract_epi16(sum, 7));
    const uint32_t offset = at & 7;
    const __m512i where = _mm512_cvtepu16_epi64(
        _mm_add_epi16(_mm_sub_epi16(sum, length), _mm_set1_epi16(static_cast<short>(offset))));
    const __m512i bytes = _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, (offset + total + 7) >> 3), p + (at >> 3));
    at += total;
    const __m512i index = _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi64(where, 3), spread), reversed);
    const __m512i w = _mm512_sllv_epi64(_mm512_permutexvar_epi8(index, bytes), _mm512_and_si512(where, seven));
    const __m512i s = _mm512_cvtepu8_epi64(codes);
    __m512i v = _mm512_srlv_epi64(_mm512_or_si512(_mm512_srli_epi64(w, 1), top), s);
    __m512i k = _mm512_andnot_si512(_mm512_srlv_epi64(ones, s), ones);
    v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xFE, up1, v), k, 0xF8);
    k = _mm512_mask_and_epi64(k, 0xFE, k, _mm512_permutexvar_epi64(up1, k));
    v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xFC, up2, v), k, 0xF8);
    k = _mm512_mask_and_epi64(k, 0xFC, k, _mm512_permutexvar_epi64(up2, k));
    v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xF0, up4, v), k, 0xF8);
    k = _mm512_mask_and_epi64(k, 0xF0, k, _mm512_permutexvar_epi64(up4, k));
    const __m512i values = _mm512_ternarylogic_epi64(v, e, k, 0xF8);
    _mm512_storeu_si512(out + i, values);
    e = _mm512_permutexvar_epi64(seven, values);
  }
  return expand_scalar(p, at, h + i, n - i, static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(e))), out + i);
}

inline uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
  const __m512i bound = _mm512_set1_epi8(static_cast<char>(limit));
  for (; from < n; from += 64) {
    const __mmask64 live = n - from >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - from)) - 1;
    const __mmask64 hits = _mm512_mask_cmple_epu8_mask(live, _mm512_maskz_loadu_epi8(live, h + from), bound);
    if (hits) return from + static_cast<uint32_t>(__builtin_ctzll(hits));
  }
  return n;
}

inline uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
  const __m512i bound = _mm512_set1_epi64(static_cast<long long>(target));
  uint64_t below = 0;
  for (uint64_t i = 0; i < n; i += 8) {
    const __mmask8 live = static_cast<__mmask8>(n - i >= 8 ? 0xFF : (1u << (n - i)) - 1);
    const unsigned smaller = static_cast<unsigned>(
        __builtin_popcount(_mm512_mask_cmplt_epu64_mask(live, _mm512_maskz_loadu_epi64(live, keys + i), bound)));
    below += smaller;
    if (smaller < 8) break;
  }
  return below;
}

inline bool match_values(const uint64_t* values, uint32_t n, const Permutation& inverse, uint64_t permuted, uint64_t query,
                         uint32_t index, unsigned radius, Sink* sink) {
  const __m512i base = _mm512_set1_epi64(static_cast<long long>(permuted));
  const __m512i bound = _mm512_set1_epi64(radius);
  for (uint32_t i = 0; i < n; i += 8) {
    const __mmask8 live = static_cast<__mmask8>(n - i >= 8 ? 0xFF : (1u << (n - i)) - 1);
    const __m512i distance = _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_maskz_loadu_epi64(live, values + i), base));
    unsigned hits = _mm512_mask_cmple_epu64_mask(live, distance, bound);
    for (; hits; hits &= hits - 1)
      if (!push(sink, inverse, values[i + static_cast<unsigned>(__builtin_ctz(hits))], permuted, query, index)) return false;
  }
  return true;
}

inline bool filter_values(const Emitter& out, const Item& item, uint64_t mask, const uint64_t* values, uint32_t n) {
  const __m512i base = _mm512_set1_epi64(static_cast<long long>(item.base));
  const __m512i bound = _mm512_set1_epi64(out.radius);
  for (uint32_t i = 0; i < n; i += 8) {
    // What lies past n is scratch, told apart only when something is near.
    const __m512i distance = _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(values + i), base));
    unsigned hits = _mm512_cmple_epu64_mask(distance, bound);
    if (__builtin_expect(hits == 0, 1)) continue;
    if (n - i < 8) hits &= (1u << (n - i)) - 1;
    for (; hits; hits &= hits - 1)
      if (!filter_values_scalar(out, item, mask, values + i + static_cast<unsigned>(__builtin_ctz(hits)), 1)) return false;
  }
  return true;
}

#include "sort.inc"
#include "kernel_set.inc"

}  // namespace

const Kernels kAvx512 = make_set("avx512");

}  // namespace fpstore
