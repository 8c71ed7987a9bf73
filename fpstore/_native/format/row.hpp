// Rows: fingerprints of one or more 64-bit words, and the widths that the kernels are compiled for.
#pragma once
#include "format/common.hpp"

namespace fpstore {

// A fingerprint of more than 64 bits, the most significant word first. Up to 64 bits a row is one
// uint64_t; fingerprints of fewer bits are at its top, and the bits below are zero.
template <unsigned Words>
struct Wide {
  uint64_t word[Words];
};
constexpr unsigned kMaxWidth = 256;
constexpr unsigned kMaxWords = kMaxWidth / 64;

template <unsigned Words>
struct RowOf {
  using type = Wide<Words>;
};
template <>
struct RowOf<1> {
  using type = uint64_t;
};

// What a kernel is compiled for.
template <unsigned Bits>
struct Width {
  static constexpr unsigned kBits = Bits;
  static constexpr unsigned kWords = Bits < 64 ? 1 : Bits / 64;
  static constexpr unsigned kLast = Bits < 64 ? Bits - 1 : 63;  // the last bit of the leading word
  static constexpr bool kWide = kWords > 1;
  static constexpr unsigned kRestWords =
      kWords - 1;  // those behind the leading word, which blocks hold as they are
  static constexpr unsigned kRestBytes = kRestWords * 8;
  using Row = typename RowOf<kWords>::type;
};

constexpr bool is_width(unsigned bits) {
  return bits == 32 || bits == 64 || bits == 128 || bits == 256;
}
constexpr unsigned words_of(unsigned bits) { return bits < 64 ? 1 : bits / 64; }
// The symbols that a block of this width may have: the places of a bit of the leading word, and
// above 64 bits that of none.
constexpr unsigned symbols_of(unsigned bits) {
  return bits < 64 ? bits : bits == 64 ? 64 : kSymbols;
}

// What work returns for a row of as many words, whose type is what counts.
template <class Work>
static inline auto with_row(unsigned words, const Work& work) {
  if (words == 1) return work(uint64_t{});
  if (words == 2) return work(Wide<2>{});
  return work(Wide<4>{});
}

static inline uint64_t leading_word(uint64_t x) { return x; }
template <unsigned Words>
static inline uint64_t leading_word(const Wide<Words>& x) {
  return x.word[0];
}

static inline uint64_t word_of(uint64_t x, unsigned) { return x; }
template <unsigned Words>
static inline uint64_t word_of(const Wide<Words>& x, unsigned word) {
  return x.word[word];
}

static inline bool is_zero(uint64_t x) { return x == 0; }
template <unsigned Words>
static inline bool is_zero(const Wide<Words>& x) {
  uint64_t any = 0;
  for (unsigned i = 0; i < Words; ++i) any |= x.word[i];
  return any == 0;
}

// A call of the library, which the compiler makes where the processor may lack the instruction, is
// slower than sums of bytes by shifts, which it turns into vectors.
static inline unsigned ones(uint64_t x) {
#if defined(__POPCNT__) || !defined(__x86_64__)
  return static_cast<unsigned>(__builtin_popcountll(x));
#else
  x -= x >> 1 & 0x5555555555555555;
  x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
  return static_cast<unsigned>(((x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56);
#endif
}
template <unsigned Words>
static inline unsigned ones(const Wide<Words>& x) {
  unsigned sum = 0;
  for (unsigned i = 0; i < Words; ++i) sum += ones(x.word[i]);
  return sum;
}

template <unsigned Words>
static inline Wide<Words> operator^(const Wide<Words>& a, const Wide<Words>& b) {
  Wide<Words> out;
  for (unsigned i = 0; i < Words; ++i) out.word[i] = a.word[i] ^ b.word[i];
  return out;
}
template <unsigned Words>
static inline Wide<Words> operator&(const Wide<Words>& a, const Wide<Words>& b) {
  Wide<Words> out;
  for (unsigned i = 0; i < Words; ++i) out.word[i] = a.word[i] & b.word[i];
  return out;
}
template <unsigned Words>
static inline bool operator==(const Wide<Words>& a, const Wide<Words>& b) {
  for (unsigned i = 0; i < Words; ++i)
    if (a.word[i] != b.word[i]) return false;
  return true;
}
template <unsigned Words>
static inline bool operator!=(const Wide<Words>& a, const Wide<Words>& b) {
  return !(a == b);
}
template <unsigned Words>
static inline bool operator<(const Wide<Words>& a, const Wide<Words>& b) {
  for (unsigned i = 0; i + 1 < Words; ++i)
    if (a.word[i] != b.word[i]) return a.word[i] < b.word[i];
  return a.word[Words - 1] < b.word[Words - 1];
}
template <unsigned Words>
static inline bool operator<=(const Wide<Words>& a, const Wide<Words>& b) {
  return !(b < a);
}

// Rows in arrays of words.
template <class Row>
static inline const Row* rows(const uint64_t* words) {
  return reinterpret_cast<const Row*>(words);
}
template <class Row>
static inline Row* rows(uint64_t* words) {
  return reinterpret_cast<Row*>(words);
}

// The row of a leading word and the words behind it, little-endian, as a block has them.
template <class W>
static inline typename W::Row row_of(uint64_t leading, const uint8_t* rest) {
  if constexpr (W::kWide) {
    typename W::Row out;
    out.word[0] = leading;
    for (unsigned i = 0; i < W::kRestWords; ++i) out.word[1 + i] = load64(rest + 8 * i);
    return out;
  } else {
    (void)rest;
    return leading;
  }
}

// Bits in which the words behind the leading one differ from those of a row.
template <class W>
static inline unsigned rest_distance(const uint8_t* rest, const typename W::Row& row) {
  unsigned sum = 0;
  if constexpr (W::kWide) {
    for (unsigned i = 0; i < W::kRestWords; ++i)
      sum += ones(load64(rest + 8 * i) ^ row.word[1 + i]);
  } else {
    (void)rest;
    (void)row;
  }
  return sum;
}

}  // namespace fpstore
