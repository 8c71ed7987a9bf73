// Sets of numbers, each named by one of its members.
#pragma once
#include <cstdint>
#include <vector>

#include "isa/runtime.hpp"

namespace fpstore {

// The least member of the set of x, with the way to it halved; parents[i] is at most i.
template <class Number>
static inline Number least_of_set(Number* parents, Number x) {
  while (parents[x] != x) x = parents[x] = parents[parents[x]];
  return x;
}

// Unites the sets that a[i] and b[i] are in. parents[i] is at most i; a set is named by its least
// member.
template <class Number>
void unite(Number* parents, const uint64_t* a, const uint64_t* b, uint64_t count);

// Groups of members of sets: group g has the members from lims[g] to lims[g + 1], and a row of
// each.
struct LinkGroups {
  const uint64_t* rows;
  unsigned words;  // of a row
  const uint64_t* members;
  const uint64_t* lims;
  uint64_t count;
  unsigned radius;
  uint64_t most;  // members of a group that is searched
};

// Unites the members of each group that are within the radius of each other. A group of more than
// `most` members is left as it is, unless all are united already; left[g] says so.
template <class Number>
void link_groups(Number* parents, const LinkGroups& groups, uint8_t* left, Stopper* stop);

// Lets each parent be the least member of its set.
template <class Number>
void name_sets(Number* parents, uint64_t count, Stopper* stop);

// Some of the numbers from 0 to `most`.
struct Bits {
  std::vector<uint64_t> bits;

  explicit Bits(uint64_t most) : bits(most / 64 + 1) {}
  bool has(uint64_t i) const { return bits[i / 64] >> i % 64 & 1; }
  // Whether it was there before.
  bool add(uint64_t i) {
    const uint64_t bit = uint64_t{1} << i % 64, before = bits[i / 64];
    bits[i / 64] = before | bit;
    return before & bit;
  }
};

// The same, with the rank of each among them.
struct RankedBits : Bits {
  std::vector<uint64_t> before;  // how many there are in the words before each

  using Bits::Bits;
  uint64_t rank_all();  // returns how many there are
  uint64_t rank(uint64_t i) const {
    return before[i / 64] + static_cast<unsigned>(
                                __builtin_popcountll(bits[i / 64] & ((uint64_t{1} << i % 64) - 1)));
  }
};

// Documents that share a label with another one, label by label.
struct SharedDocuments {
  uint64_t* lims;       // where each label begins, and the end; in the order of the least documents
  uint64_t* documents;  // ascending for each label
  uint64_t* places;     // of the documents among all; null if these are the documents
};

// Labels that two or more documents have.
struct SharedLabels {
  RankedBits shared;
  std::vector<uint64_t> sizes;  // how many documents each has, by its rank
  uint64_t count = 0;           // of these documents
};
template <class Number>
SharedLabels shared_labels(const Number* labels, uint64_t count, Stopper* stop);

// Brings together the documents, all different, or their places if they are null, that share a
// label; `out` has room for found.count of them, and for one limit more than labels.
template <class Number, class Document>
void group_documents(const Number* labels, const Document* documents, uint64_t count,
                     const SharedLabels& found, const SharedDocuments& out, Stopper* stop);

}  // namespace fpstore
