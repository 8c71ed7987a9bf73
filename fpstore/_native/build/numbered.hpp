// Rows of a key and a number of 32 bits, in two arrays: parts by leading digits, and sorts of parts.
#pragma once
#include "isa/runtime.hpp"

namespace fpstore {

struct Numbered {
  uint64_t* keys;
  uint32_t* numbers;
};

constexpr unsigned kMostPartBits = 12;

// A digit: the bits [depth, depth + bits) of a key.
struct Digit {
  unsigned depth;
  unsigned bits;
};

// Adds to counts, which has 2^bits places, how many keys have each digit.
void count_parts(const uint64_t* keys, size_t n, const Digit& by, uint64_t* counts, Stopper* stop);

// Where rows come from; without numbers they are numbered from first on.
struct NumberedSource {
  const uint64_t* keys;
  const uint32_t* numbers;
  uint32_t first;
  size_t n;
};

// Writes rows to their parts of out, which has room rows: at[d] is where the next one with digit d goes, and is moved on. False when a
// part has no room.
bool scatter_parts(const NumberedSource& from, const Digit& by, uint64_t* at, const Numbered& out, size_t room, Stopper* stop);

// Sorts each of successive parts by their keys, stable; the keys of a part agree in the leading depth bits. ends are of the parts.
void sort_numbered(const Numbered& rows, const uint64_t* ends, size_t parts, unsigned depth, Stopper* stop);

// Whether no key is there twice, of keys in order.
bool are_all_distinct(const uint64_t* keys, size_t n, Stopper* stop);

// Moves sorted rows together: distinct keys, how many numbers each has, which is at most n places, and the numbers, distinct and
// ascending for each key. Returns how many keys there are.
size_t group_numbered(const Numbered& rows, size_t n, uint64_t* counts, size_t* number_count, Stopper* stop);

}  // namespace fpstore
