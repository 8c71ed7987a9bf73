// What the fuzz targets do with fingerprints of every width: one bit, one more, random ones,
// ascending ones.
#pragma once
#include <memory>

#include "format/row.hpp"
#include "input.hpp"

namespace fuzz {

// Calls a function with one of the widths.
template <class Call>
inline void with_width(unsigned choice, Call call) {
  switch (choice % 4) {
    case 0:
      return call(fpstore::Width<64>());
    case 1:
      return call(fpstore::Width<32>());
    case 2:
      return call(fpstore::Width<128>());
    default:
      return call(fpstore::Width<256>());
  }
}

inline uint64_t& word_at(uint64_t& x, unsigned) { return x; }
template <unsigned Words>
inline uint64_t& word_at(fpstore::Wide<Words>& x, unsigned word) {
  return x.word[word];
}

// A row of what a function gives for each word.
template <class W, class Next>
inline typename W::Row made_row(Next next) {
  typename W::Row x{};
  for (unsigned i = 0; i < W::kWords; ++i)
    word_at(x, i) = W::kBits < 64 ? next() & fpstore::top_mask(W::kBits) : next();
  return x;
}
template <class W>
inline typename W::Row random_row(Random* random) {
  return made_row<W>([random] { return random->next(); });
}
template <class W>
inline typename W::Row input_row(Input* input) {
  return made_row<W>([input] { return input->word(); });
}

// The row whose first so many bits are set.
template <class W>
inline typename W::Row top_bits(unsigned bits) {
  unsigned at = 0;
  return made_row<W>([bits, &at] {
    const unsigned left = bits > at ? bits - at : 0;
    at += 64;
    return fpstore::top_mask(left < 64 ? left : 64);
  });
}
// The row of one bit; 0 is the first.
template <class W>
inline typename W::Row one_bit(unsigned bit) {
  typename W::Row x{};
  word_at(x, bit / 64) = uint64_t{1} << (63 - bit % 64);
  return x;
}
template <class Row>
inline bool has_bit(const Row& x, unsigned bit) {
  return fpstore::word_of(x, bit / 64) >> (63 - bit % 64) & 1;
}
template <class W>
inline typename W::Row without(const typename W::Row& x, const typename W::Row& mask) {
  typename W::Row y = x;
  for (unsigned i = 0; i < W::kWords; ++i) word_at(y, i) &= ~fpstore::word_of(mask, i);
  return y;
}
template <class W>
inline typename W::Row joined(const typename W::Row& x, const typename W::Row& y) {
  typename W::Row z = x;
  for (unsigned i = 0; i < W::kWords; ++i) word_at(z, i) |= fpstore::word_of(y, i);
  return z;
}

// The row after x by a number, which may be negative, as numbers of whole words; the first follows
// the last.
template <class W>
inline typename W::Row plus(typename W::Row x, int64_t by) {
  const uint64_t sign = by < 0 ? ~uint64_t{0} : 0;
  unsigned carry = 0;
  for (unsigned i = W::kWords; i--;) {
    uint64_t add = i + 1 == W::kWords ? static_cast<uint64_t>(by) : sign;
    if (W::kBits < 64) add <<= (64 - W::kBits) & 63;
    const unsigned __int128 sum =
        static_cast<unsigned __int128>(fpstore::word_of(x, i)) + add + carry;
    word_at(x, i) = static_cast<uint64_t>(sum);
    carry = static_cast<unsigned>(sum >> 64);
  }
  return x;
}

// A row above x whose first other bit is this one, which x has not; the bits behind it are random.
template <class W>
inline typename W::Row above(const typename W::Row& x, unsigned bit, Random* random) {
  const auto before = top_bits<W>(bit);
  return joined<W>(joined<W>(x & before, one_bit<W>(bit)),
                   without<W>(random_row<W>(random), top_bits<W>(bit + 1)));
}

template <class Row>
inline const uint64_t* words(const std::vector<Row>& rows) {
  return reinterpret_cast<const uint64_t*>(rows.data());
}
template <class Row>
inline uint64_t* words(std::vector<Row>* rows) {
  return reinterpret_cast<uint64_t*>(rows->data());
}

// An exact allocation, so that a read or write past its end is seen.
template <class Row>
struct Exact {
  explicit Exact(size_t room) : n(room), p(new Row[room]) {}
  explicit Exact(const std::vector<Row>& rows) : Exact(rows.size()) {
    std::copy(rows.begin(), rows.end(), p.get());
  }
  uint64_t* words() const { return reinterpret_cast<uint64_t*>(p.get()); }
  bool starts_with(const std::vector<Row>& rows) const {
    return rows.size() <= n && std::equal(rows.begin(), rows.end(), p.get());
  }
  std::vector<Row> first(size_t count) const { return std::vector<Row>(p.get(), p.get() + count); }
  size_t n;
  std::unique_ptr<Row[]> p;
};

}  // namespace fuzz
