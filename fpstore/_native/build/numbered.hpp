// Rows of a key and a number, in two arrays: parts by leading digits, sorts of parts, groups. A key
// is a row of 1, 2 or 4 words, a number has 32 or 64 bits.
#pragma once
#include "format/row.hpp"
#include "isa/runtime.hpp"

namespace fpstore {

template <class Row, class Number>
struct Numbered {
  Row* keys;
  Number* numbers;
};

constexpr unsigned kMaxPartBits = 12;

// A digit: the bits [depth, depth + bits) of a key, in one of its words.
struct Digit {
  unsigned depth;
  unsigned bits;
};

// Adds to counts, which has 2^bits places, how many keys have each digit.
template <class Row>
void count_parts(const Row* keys, size_t n, const Digit& by, uint64_t* counts, Stopper* stop);

// Where rows come from; without numbers they are numbered from first on.
template <class Row, class Number>
struct NumberedSource {
  const Row* keys;
  const Number* numbers;
  Number first;
  size_t n;
};

// Writes rows to their parts of out, which has room rows: at[d] is where the next one with digit d
// goes, and is moved on. False when a part has no room.
template <class Row, class Number>
bool scatter_parts(const NumberedSource<Row, Number>& from, const Digit& by, uint64_t* at,
                   const Numbered<Row, Number>& out, size_t room, Stopper* stop);

// Sorts each of successive parts by their keys, stable; the keys of a part agree in the leading
// depth bits. ends are of the parts.
template <class Row, class Number>
void sort_numbered(const Numbered<Row, Number>& rows, const uint64_t* ends, size_t parts,
                   unsigned depth, Stopper* stop);

// Whether no key is there twice, of keys in order.
template <class Row>
bool are_all_distinct(const Row* keys, size_t n, Stopper* stop);

// Moves sorted rows together: distinct keys, how many numbers each has, which is at most n places,
// and the numbers, distinct and ascending for each key. Returns how many keys there are.
template <class Row, class Number>
size_t group_numbered(const Numbered<Row, Number>& rows, size_t n, uint64_t* counts,
                      size_t* number_count, Stopper* stop);

}  // namespace fpstore
