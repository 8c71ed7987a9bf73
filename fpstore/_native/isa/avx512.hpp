// AVX-512, of machines that have all the parts of it that are named below.
#pragma once
#include "columns/near_tags_avx2.hpp"
#include "isa/avx2.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// The eight bits of a mask as a number; a plain conversion is not safe. GCC 12 merges it with the
// comparison that made the mask, and splits what it merged into one that writes the low byte of the
// number alone. Where the number is kept on the stack, its upper bytes are then what was there
// before (tests/files/test_fuzz_targets.py shows it). The compiler cannot merge anything with an
// asm.
inline unsigned bits_of(__mmask8 mask) {
  asm("" : "+r"(mask));
  return mask;
}

// What eight entries are, when each is v ORed with what it keeps of the one before, all but the
// bits of m, and the last before them is e.
inline __m512i follow(__m512i v, __m512i m, __m512i e) {
  const __m512i up1 = _mm512_setr_epi64(0, 0, 1, 2, 3, 4, 5, 6);
  const __m512i up2 = _mm512_setr_epi64(0, 0, 0, 1, 2, 3, 4, 5);
  const __m512i up4 = _mm512_setr_epi64(0, 0, 0, 0, 0, 1, 2, 3);
  v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xFE, up1, v), m, 0xF4);
  m = _mm512_mask_or_epi64(m, 0xFE, m, _mm512_permutexvar_epi64(up1, m));
  v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xFC, up2, v), m, 0xF4);
  m = _mm512_mask_or_epi64(m, 0xFC, m, _mm512_permutexvar_epi64(up2, m));
  v = _mm512_ternarylogic_epi64(v, _mm512_maskz_permutexvar_epi64(0xF0, up4, v), m, 0xF4);
  m = _mm512_mask_or_epi64(m, 0xF0, m, _mm512_permutexvar_epi64(up4, m));
  return _mm512_ternarylogic_epi64(v, e, m, 0xF4);
}

// The sum of eight words. That of the compiler's header may add them as signed ones, which must not
// overflow.
inline uint64_t sum_of(__m512i x) {
  const __m256i four = _mm256_add_epi64(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  const __m128i two =
      _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) +
         static_cast<uint64_t>(_mm_extract_epi64(two, 1));
}

struct ByteNumbers {
  uint8_t of[64];
};

constexpr ByteNumbers make_byte_numbers() {
  ByteNumbers numbers{};
  for (uint8_t i = 0; i < 64; ++i) numbers.of[i] = i;
  return numbers;
}

alignas(64) constexpr ByteNumbers kByteNumbers = make_byte_numbers();

inline bool has_long_tail(const uint8_t* h, uint32_t n) {
  for (uint32_t i = 0; i < n; i += 64) {
    const __mmask64 live = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
    if (_mm512_mask_cmplt_epu8_mask(live, _mm512_loadu_si512(h + i),
                                    _mm512_set1_epi8(kShortTailFrom)))
      return true;
  }
  return false;
}

// An entry that differs behind its leading word has no tail, like one that differs in the last bit
// of it.
template <class W>
inline __m512i at_most_last(__m512i h) {
  if constexpr (W::kWide)
    return _mm512_min_epu8(h, _mm512_set1_epi8(W::kLast));
  else
    return h;
}

// One seek on its way, in a block whose codes fit two vectors; a step is that of the loop in
// seek(), without its branches: a seek that is done takes empty steps while others go on. Four of
// them wait for their loads and vectors together.
template <class W>
struct Seeker {
  const uint8_t* block;
  const uint8_t* h;
  uint64_t target;
  uint64_t value;
  uint64_t end[2];  // a bit behind the last code
  uint32_t n;
  uint32_t index;
  uint32_t at;

  bool open() const { return value < target; }
  void step() {
    const bool live = open();
    const __m512i bound =
        _mm512_set1_epi8(live ? static_cast<char>(_lzcnt_u64(value ^ target)) : -1);
    const __m512i h0 = _mm512_loadu_si512(h), h1 = _mm512_loadu_si512(h + 64);
    const uint32_t from = index > 64 ? index - 64 : 0;
    const uint64_t m0 =
        (_mm512_cmple_epu8_mask(h0, bound) | end[0]) & ~_bzhi_u64(~uint64_t{0}, index);
    const uint64_t m1 =
        (_mm512_cmple_epu8_mask(h1, bound) | end[1]) & ~_bzhi_u64(~uint64_t{0}, from);
    const uint32_t j = static_cast<uint32_t>(m0 ? _tzcnt_u64(m0) : 64 + _tzcnt_u64(m1));
    const __mmask64 r0 = _bzhi_u64(~_bzhi_u64(~uint64_t{0}, index), j);
    const __mmask64 r1 = _bzhi_u64(~_bzhi_u64(~uint64_t{0}, from), j > 64 ? j - 64 : 0);
    const __m512i zero = _mm512_setzero_si512();
    const __m512i sums =
        _mm512_add_epi64(_mm512_sad_epu8(_mm512_maskz_mov_epi8(r0, at_most_last<W>(h0)), zero),
                         _mm512_sad_epu8(_mm512_maskz_mov_epi8(r1, at_most_last<W>(h1)), zero));
    const uint32_t place =
        at + W::kLast * (j - index) - static_cast<uint32_t>(_mm512_reduce_add_epi64(sums));
    const uint64_t next = keep_before<W>(value, h[j] & 63) | tail_value<W>(block, place, h[j] & 63);
    // Behind the last code is no entry: the seek ends with n + 1 read, and index tells.
    value = live ? (j < n ? next : ~uint64_t{0}) : value;
    at = live ? place + tail_length<W>(h[j] & 63) : at;
    index = live ? j + 1 : index;
  }
};

// F, BW, DQ, VL, CD, VPOPCNTDQ, VBMI, VBMI2.
template <class Width_>
struct Avx512 : Avx2<Width_> {
  using W = Width_;

  static constexpr uint64_t kExpandFrom = 8;
  static constexpr unsigned kExpandShared = 2;
  static constexpr size_t kVectorBytes = 64, kMinimaVectors = 2;

  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
    const auto all = [](uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); };
    const __m512i step = all(kSumStep), seeds = all(seed);
    __m512i keys = _mm512_add_epi64(seeds, multiples(xxh::kP1));
    __m512i sums = mixed(_mm512_maskz_loadu_epi32(0xFFFE, p), keys);
    const uint8_t* const end = p + bytes;
    for (p += 64; p < end; p += 64) {
      keys = _mm512_add_epi64(keys, step);
      sums = _mm512_add_epi64(sums, mixed(_mm512_loadu_si512(p), keys));
    }
    sums = mixed(sums, _mm512_add_epi64(seeds, multiples(xxh::kP2)));
    return finish_sum(seed + sum_of(sums));
  }

  static __m512i multiples(uint64_t p) {
    const auto of = [p](uint64_t n) { return static_cast<long long>(n * p); };
    return _mm512_setr_epi64(of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8));
  }

  static __m512i mixed(__m512i words, __m512i keys) {
    const __m512i x = _mm512_xor_si512(words, keys);
    return _mm512_add_epi64(_mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)),
                            _mm512_shuffle_epi32(words, _MM_PERM_BADC));
  }

  static uint32_t code_bits(const DecodeTable& code, const uint8_t* h, uint32_t n) {
    const __m512i symbols = _mm512_loadu_si512(h);
    __m512i lengths = _mm512_permutexvar_epi8(symbols, _mm512_loadu_si512(code.bits));
    if constexpr (W::kWide)
      lengths = _mm512_mask_mov_epi8(lengths, _mm512_cmpeq_epi8_mask(symbols, _mm512_set1_epi8(64)),
                                     _mm512_set1_epi8(static_cast<char>(code.bits[64])));
    const __m256i live =
        _mm512_castsi512_si256(_mm512_maskz_mov_epi8((uint64_t{1} << n) - 1, lengths));
    const __m256i sums = _mm256_sad_epu8(live, _mm256_setzero_si256());
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return static_cast<uint32_t>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
  }
  static_assert(kRoundSymbols <= 32, "code_bits() sums the lower half of a vector");

  static uint32_t tail_bits(const uint8_t* h, uint32_t n) {
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t i = 0; i < n; i += 64) {
      const __mmask64 live = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
      sum = _mm512_add_epi64(sum,
                             _mm512_sad_epu8(at_most_last<W>(_mm512_maskz_loadu_epi8(live, h + i)),
                                             _mm512_setzero_si512()));
    }
    return W::kLast * n - static_cast<uint32_t>(_mm512_reduce_add_epi64(sum));
  }

  static uint32_t expand_highs(const HighParts& highs, uint16_t* rises) {
    const __m512i numbers = _mm512_load_si512(kByteNumbers.of);
    uint32_t i = 0;
    for (uint32_t at = 0; at < highs.bits; at += 64) {
      const uint64_t ones =
          _bzhi_u64(load64(highs.p + at / 8), highs.bits - at < 64 ? highs.bits - at : 64);
      const __m512i places = _mm512_sub_epi8(_mm512_maskz_compress_epi8(ones, numbers), numbers);
      const __m512i behind = _mm512_set1_epi16(static_cast<short>(at - i));
      _mm512_storeu_si512(
          rises + i,
          _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(places)), behind));
      _mm512_storeu_si512(
          rises + i + 32,
          _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(places, 1)), behind));
      i += static_cast<uint32_t>(_mm_popcnt_u64(ones));
    }
    return i;
  }

  // Eight low parts lie in 64 bytes, and a byte permutation brings each to its lane. Loads are
  // masked at the end of the block.
  static void join_parts(const HighParts& highs, const uint16_t* rises, const LowParts& lows,
                         uint32_t count, uint64_t* out) {
    const auto all = [](uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); };
    const __m512i mask = all((uint64_t{1} << lows.bits) - 1), before = all(highs.before);
    const __m512i at = _mm512_add_epi64(
        all(lows.at & 7),
        _mm512_mullo_epi64(all(lows.bits), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)));
    const __m512i spread =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8));
    const __m512i index = _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi64(at, 3), spread),
                                          all(0x0706050403020100));
    const __m512i shifts = _mm512_and_si512(at, all(7));
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(highs.shift));
    const uint8_t* const block = lows.block;
    uint32_t from = lows.at >> 3;
    for (uint32_t i = 0; i < count; i += 8, from += lows.bits) {
      const __m512i bytes =
          FPSTORE_LIKELY(from + 64 <= lows.limit)
              ? _mm512_loadu_si512(block + from)
              : _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, lows.limit - from), block + from);
      const __m512i words = _mm512_srlv_epi64(_mm512_permutexvar_epi8(index, bytes), shifts);
      const __m512i rise =
          _mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rises + i)));
      const __m512i high = _mm512_sll_epi64(_mm512_add_epi64(rise, before), shift);
      if constexpr (kUnused<W> == 0)
        _mm512_storeu_si512(out + i, _mm512_ternarylogic_epi64(words, mask, high, 0xEA));
      else
        _mm512_storeu_si512(
            out + i,
            _mm512_or_si512(_mm512_slli_epi64(_mm512_and_si512(words, mask), kUnused<W>), high));
    }
  }

  // Eight entries at a time. Their tails take at most 8 x 63 bits, so one 64-byte load holds them
  // all and a byte permutation brings each to its lane, most significant byte first, from the bit
  // before it on, where its set bit belongs. An entry is what it keeps of its predecessor ORed with
  // its tail, and that composition is associative: with m the bits that are not kept, (m1, v1) then
  // (m2, v2) is (m1 | m2, (v1 & ~m2) | v2), so three doubling steps turn eight of them into
  // functions of the last entry before. Loads are masked at the end of the block. What lies past
  // the last entry has no part in it: the doubling goes upwards only.
  static uint64_t expand_tails(const Tails& tails, const uint8_t* h, uint32_t n, uint64_t previous,
                               uint64_t* out) {
    const uint8_t* const p = tails.p;
    const uint32_t limit = tails.limit;
    uint32_t at = tails.at;
    const __m512i spread =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8));
    const __m512i reversed =
        _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0));
    const __m512i before = _mm512_setr_epi64(0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF,
                                             0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF);
    constexpr int kLast = W::kLast;
    const __m512i steps = _mm512_setr_epi64(0, kLast, 2 * kLast, 3 * kLast, 4 * kLast, 5 * kLast,
                                            6 * kLast, 7 * kLast);
    const __m512i used = _mm512_set1_epi64(static_cast<long long>(top_mask(kLast + 1)));
    const __m512i ones = _mm512_set1_epi64(-1);
    const __m512i top = _mm512_set1_epi64(INT64_MIN);
    const __m512i seven = _mm512_set1_epi64(7);
    if (kHasLongTails<W> && FPSTORE_UNLIKELY(has_long_tail(h, n)))
      return Portable<W>::expand_tails(tails, h, n, previous, out);
    __m512i e = _mm512_set1_epi64(static_cast<long long>(previous));
    --at;
    for (uint32_t i = 0; i < n; i += 8) {
      const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(h + i));
      const __m128i shares =
          W::kWide ? _mm_min_epu8(codes, _mm_set1_epi8(kLast)) : codes;  // of the tails' lengths
      const uint32_t total =
          8 * kLast -
          static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_sad_epu8(shares, _mm_setzero_si128())));
      const __m512i sums = _mm512_sad_epu8(
          _mm512_and_si512(_mm512_broadcastq_epi64(shares), before), _mm512_setzero_si512());
      const __m512i where =
          _mm512_sub_epi64(_mm512_add_epi64(steps, _mm512_set1_epi64(at & 7)), sums);
      const uint32_t from = at >> 3;
      const __m512i bytes =
          FPSTORE_LIKELY(from + 64 <= limit)
              ? _mm512_loadu_si512(p + from)
              : _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, limit - from), p + from);
      at += total;
      const __m512i index =
          _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi64(where, 3), spread), reversed);
      const __m512i w =
          _mm512_sllv_epi64(_mm512_permutexvar_epi8(index, bytes), _mm512_and_si512(where, seven));
      const __m512i s = _mm512_cvtepu8_epi64(codes);
      __m512i v = _mm512_srlv_epi64(_mm512_or_si512(w, top), s);
      if constexpr (kLast < 63) v = _mm512_and_si512(v, used);
      const __m512i m = _mm512_srlv_epi64(ones, s);
      const __m512i values = follow(v, m, e);
      if (FPSTORE_UNLIKELY(n - i < 8)) {
        _mm512_mask_storeu_epi64(out + i, static_cast<__mmask8>((1u << (n - i)) - 1), values);
        e = _mm512_permutexvar_epi64(_mm512_set1_epi64(n - i - 1), values);
      } else {
        _mm512_storeu_si512(out + i, values);
        e = _mm512_permutexvar_epi64(seven, values);
      }
    }
    return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(e)));
  }

  static uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
    const __m512i bound = _mm512_set1_epi8(static_cast<char>(limit));
    for (; from < n; from += 64) {
      const __mmask64 live = n - from >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - from)) - 1;
      const __mmask64 hits =
          _mm512_mask_cmple_epu8_mask(live, _mm512_maskz_loadu_epi8(live, h + from), bound);
      if (hits) return from + static_cast<uint32_t>(__builtin_ctzll(hits));
    }
    return n;
  }

  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    const __m512i bound = _mm512_set1_epi64(static_cast<long long>(target));
    uint64_t below = 0;
    for (uint64_t i = 0; i < n; i += 16) {
      // Without a branch on where the place is.
      const uint32_t live = static_cast<uint32_t>(n - i >= 16 ? 0xFFFF : (1u << (n - i)) - 1);
      const __mmask8 low = static_cast<__mmask8>(live), high = static_cast<__mmask8>(live >> 8);
      const __mmask8 a =
          _mm512_mask_cmplt_epu64_mask(low, _mm512_maskz_loadu_epi64(low, keys + i), bound);
      const __mmask8 b =
          _mm512_mask_cmplt_epu64_mask(high, _mm512_maskz_loadu_epi64(high, keys + i + 8), bound);
      const unsigned smaller =
          static_cast<unsigned>(__builtin_popcount(bits_of(a) | bits_of(b) << 8));
      below += smaller;
      if (smaller < 16) break;
    }
    return below;
  }

  static bool match_values(const ScanQuery<W>& q, const LeadingWords& entries) {
    const uint64_t* const values = entries.values;
    const uint32_t n = entries.n;
    const __m512i base = _mm512_set1_epi64(static_cast<long long>(leading_word(q.permuted)));
    const __m512i bound = _mm512_set1_epi64(q.radius);
    const auto distances = [&](uint32_t i) {
      return _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(values + i), base));
    };
    for (uint32_t i = 0; i < n; i += 32) {
      // What lies past n is scratch, told apart only when something is near.
      const __m512i d[4] = {distances(i), distances(i + 8), distances(i + 16), distances(i + 24)};
      const __m512i least =
          _mm512_min_epu64(_mm512_min_epu64(d[0], d[1]), _mm512_min_epu64(d[2], d[3]));
      if (FPSTORE_LIKELY(bits_of(_mm512_cmple_epu64_mask(least, bound)) == 0)) continue;
      for (uint32_t at = i; at < n && at < i + 32; at += 8) {
        unsigned hits = bits_of(_mm512_cmple_epu64_mask(d[(at - i) / 8], bound));
        if (n - at < 8) hits &= (1u << (n - at)) - 1;
        for (; hits; hits &= hits - 1) {
          const uint32_t j = at + static_cast<unsigned>(__builtin_ctz(hits));
          if (!emit(q, values[j], ones(values[j] ^ leading_word(q.permuted)),
                    entries.rests + j * W::kRestBytes))
            return false;
        }
      }
    }
    return true;
  }

  static bool any_near(const uint64_t* values, uint64_t base, unsigned radius) {
    static_assert(Portable<W>::kAtOnce == 8);
    const __m512i distance = _mm512_popcnt_epi64(_mm512_xor_si512(
        _mm512_loadu_si512(values), _mm512_set1_epi64(static_cast<long long>(base))));
    return bits_of(_mm512_cmple_epu64_mask(distance, _mm512_set1_epi64(radius))) != 0;
  }

  static bool filter_values(const Emitter<W>& out, const Item<W>& item, const LeadingWords& entries,
                            uint32_t from) {
    const uint64_t* const values = entries.values;
    const uint32_t n = entries.n;
    const __m512i base = _mm512_set1_epi64(static_cast<long long>(leading_word(item.base)));
    const __m512i bound = _mm512_set1_epi64(out.options.radius);
    for (uint32_t i = from; i < n && values[i] <= item.last; i += 8) {
      // What lies past n is scratch, told apart only when something is near.
      const __m512i distance =
          _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_loadu_si512(values + i), base));
      unsigned hits = bits_of(_mm512_cmple_epu64_mask(distance, bound));
      if (FPSTORE_LIKELY(hits == 0)) continue;
      if (n - i < 8) hits &= (1u << (n - i)) - 1;
      for (; hits; hits &= hits - 1) {
        const uint32_t at = i + static_cast<unsigned>(__builtin_ctz(hits));
        if (values[at] > item.last) break;
        if (!emit(out, item, values[at], ones(values[at] ^ leading_word(item.base)),
                  entries.rests + at * W::kRestBytes, {entries.block, at}))
          return false;
      }
    }
    return true;
  }

  static bool seek_together(const CodeSeek* seeks, unsigned n, Cursor* cursors, bool* fine) {
    Seeker<W> s[kWays];
    bool fit = n > 1;
    for (unsigned k = 0; k < n; ++k) fit &= seeks[k].head->count <= 128;
    if (!fit) return false;
    for (unsigned k = 0; k < kWays; ++k) {
      const CodeSeek& from = seeks[k < n ? k : 0];
      const uint32_t codes = from.head->count - 1;
      s[k] = Seeker<W>{
          from.block,
          from.h,
          from.target,
          k < n ? from.head->first : ~uint64_t{0},
          {codes < 64 ? uint64_t{1} << codes : 0, codes < 64 ? 0 : uint64_t{1} << (codes - 64)},
          codes,
          0,
          from.head->tail_at};
    }
    bool open;
    do {
      open = false;
      for (unsigned k = 0; k < kWays; ++k) s[k].step();
      for (unsigned k = 0; k < kWays; ++k) open |= s[k].open();
    } while (open);
    for (unsigned k = 0; k < n; ++k) {
      fine[k] = s[k].index <= s[k].n;
      cursors[k] = Cursor{s[k].index, s[k].at, s[k].value};
    }
    return true;
  }

  static size_t within_radius(const uint64_t* keys, size_t n, uint64_t query, unsigned radius,
                              uint32_t* places) {
    const __m512i base = _mm512_set1_epi64(static_cast<long long>(query));
    const __m512i bound = _mm512_set1_epi64(radius);
    size_t count = 0;
    for (size_t i = 0; i < n; i += 8) {
      const __mmask8 live = static_cast<__mmask8>(n - i >= 8 ? 0xFF : (1u << (n - i)) - 1);
      const __m512i distance =
          _mm512_popcnt_epi64(_mm512_xor_si512(_mm512_maskz_loadu_epi64(live, keys + i), base));
      for (unsigned hits = bits_of(_mm512_mask_cmple_epu64_mask(live, distance, bound)); hits;
           hits &= hits - 1)
        places[count++] = static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(hits));
    }
    return count;
  }
};

// Bits of words of 16 are counted by an instruction that not all machines have which have the rest
// of the set (VPOPCNTW); a shuffle is as fast where memory is what is waited for.
struct Avx512Tags : Avx2Tags {
  // Bytes behind n that a load reaches are masked off, and so are not read.
  static unsigned near_tags(const uint8_t* tags, unsigned n, unsigned query, unsigned mask,
                            unsigned limit, uint16_t* places) {
    const __m512i base = _mm512_set1_epi16(static_cast<short>(query));
    const __m512i low = _mm512_set1_epi16(static_cast<short>(mask & 0x0F0F));
    const __m512i high = _mm512_set1_epi16(static_cast<short>(mask >> 4 & 0x0F0F));
    const __m512i bits =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i ones = _mm512_set1_epi8(1), bound = _mm512_set1_epi16(static_cast<short>(limit));
    unsigned count = 0;
    for (unsigned i = 0; i < n; i += 32) {
      const __mmask32 live = n - i >= 32 ? ~__mmask32{0} : (__mmask32{1} << (n - i)) - 1;
      const __m512i x = _mm512_xor_si512(_mm512_maskz_loadu_epi16(live, tags + 2 * i), base);
      const __m512i bytes = _mm512_add_epi8(
          _mm512_shuffle_epi8(bits, _mm512_and_si512(x, low)),
          _mm512_shuffle_epi8(bits, _mm512_and_si512(_mm512_srli_epi16(x, 4), high)));
      uint32_t hits = _mm512_mask_cmple_epu16_mask(live, _mm512_maddubs_epi16(bytes, ones), bound);
      for (; hits; hits &= hits - 1)
        places[count++] = static_cast<uint16_t>(i + static_cast<unsigned>(__builtin_ctz(hits)));
    }
    return count;
  }

  static unsigned pairs_in_a_bit(const uint8_t* tags, unsigned n, unsigned* row, unsigned mask,
                                 uint16_t* left, uint16_t* right, unsigned room) {
    if (n <= 64) return pairs_of_few<2>(tags, n, row, mask, left, right, room);
    if (n <= 96) return pairs_of_few<3>(tags, n, row, mask, left, right, room);
    if (n <= 128) return pairs_of_few<4>(tags, n, row, mask, left, right, room);
    return Avx2Tags::pairs_in_a_bit(tags, n, row, mask, left, right, room);
  }

  // At most 32 tags for each of some vectors, all of which the registers hold.
  template <unsigned Vectors>
  static unsigned pairs_of_few(const uint8_t* tags, unsigned n, unsigned* row, unsigned mask,
                               uint16_t* left, uint16_t* right, unsigned room) {
    static_assert(Vectors <= 4);
    const __m512i live = _mm512_set1_epi16(static_cast<short>(mask)), less = _mm512_set1_epi16(-1);
    __m512i all[Vectors];
#pragma GCC unroll 4
    for (unsigned v = 0; v < Vectors; ++v) {
      const __mmask32 there = static_cast<__mmask32>(_bzhi_u64(~0u, n > 32 * v ? n - 32 * v : 0));
      all[v] = _mm512_maskz_loadu_epi16(there, tags + 64 * v);
    }
    unsigned count = 0, i = *row;
    const auto add = [&](unsigned first, uint64_t hits) {
      for (; hits; hits &= hits - 1) {
        left[count] = static_cast<uint16_t>(i);
        right[count++] =
            static_cast<uint16_t>(first + static_cast<unsigned>(__builtin_ctzll(hits)));
      }
    };
#pragma GCC unroll 4
    for (unsigned from = 0; from < Vectors; ++from) {
      // The tags behind the row, in two words of 64.
      uint64_t behind[2] = {_bzhi_u64(~uint64_t{0}, n),
                            _bzhi_u64(~uint64_t{0}, n < 64 ? 0 : n - 64)};
      if (i / 64 == from / 2) behind[from / 2] &= ~uint64_t{1} << (i % 64);
      for (const unsigned end = n < 32 * from + 32 ? n : 32 * from + 32; i < end; ++i) {
        const __m512i base = _mm512_set1_epi16(static_cast<short>(load16(tags + 2 * i)));
        uint64_t hits[2] = {0, 0};
#pragma GCC unroll 4
        for (unsigned v = from; v < Vectors; ++v) {
          const __m512i x = _mm512_ternarylogic_epi32(all[v], base, live, 0x28);
          const uint64_t near = _mm512_testn_epi16_mask(x, _mm512_add_epi16(x, less));
          hits[v / 2] |= near << 32 * (v % 2);
        }
        hits[0] &= behind[0];
        hits[1] &= behind[1];
        behind[from / 2] &= behind[from / 2] - 1;
        if (FPSTORE_LIKELY(!(hits[0] | hits[1]))) continue;
        add(0, hits[0]);
        add(64, hits[1]);
        if (room - count >= n) continue;
        *row = i + 1;
        return count;
      }
    }
    *row = i;
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
