// Sets of numbers, each named by one of its members.
#pragma once
#include <cstdint>
#include <vector>

#include "isa/runtime.hpp"

namespace fpstore {

// Unites the sets that a[i] and b[i] are in. parents[i] is at most i; a set is named by its least member.
template <class Number>
void unite(Number* parents, const uint64_t* a, const uint64_t* b, uint64_t count);

// Lets each parent be the least member of its set.
template <class Number>
void name_sets(Number* parents, uint64_t count);

// Some of the numbers below a bound, with the rank of each among them.
struct RankedBits {
  std::vector<uint64_t> bits, before;  // before[w]: how many there are in the words before w

  explicit RankedBits(uint64_t bound) : bits(bound / 64 + 1), before(bound / 64 + 1) {}
  void add(uint64_t i) { bits[i / 64] |= uint64_t{1} << i % 64; }
  bool has(uint64_t i) const { return bits[i / 64] >> i % 64 & 1; }
  uint64_t count();  // of all; ranks are known from now on
  uint64_t rank(uint64_t i) const {
    return before[i / 64] + static_cast<unsigned>(__builtin_popcountll(bits[i / 64] & ((uint64_t{1} << i % 64) - 1)));
  }
};

// Whether all numbers, which are at most `most`, differ.
template <class Number>
bool all_differ(const Number* numbers, uint64_t count, uint64_t most, Stopper* stop);

// Adds the labels that two or more places have; each is below the bound.
template <class Number>
void add_shared(const Number* labels, uint64_t count, RankedBits* shared, Stopper* stop);

// Writes the places with these labels, ascending, unless `places` is null; returns how many there are.
template <class Number>
uint64_t places_with(const Number* labels, uint64_t count, const RankedBits& shared, uint64_t* places, Stopper* stop);

// Writes `places` label by label, the labels in the order of their first place, and the places of each in their order; returns where the
// labels begin, and the end. All labels there are among the `sets` shared ones.
template <class Number>
std::vector<uint64_t> group_places(const Number* labels, const RankedBits& shared, uint64_t sets, const uint64_t* places, uint64_t count,
                                   uint64_t* grouped, Stopper* stop);

}  // namespace fpstore
