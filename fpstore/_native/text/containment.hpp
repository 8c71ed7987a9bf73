// Which texts of a group go because one that stays contains them, or is as similar.
#pragma once
#include "isa/runtime.hpp"
#include "text/feature_sets.hpp"

namespace fpstore {

// A set goes if one that stays has so much of it: `contained` of its features, or `similar` of the
// features of both (Broder, SEQUENCES 1997, section 2). A share above 1 is never reached.
struct ContainmentRule {
  double contained, similar;

  bool goes(uint64_t size, uint64_t kept_size, uint64_t shared) const {
    const auto both = static_cast<double>(shared);
    return size && (both / static_cast<double>(size) >= contained ||
                    both / static_cast<double>(size + kept_size - shared) >= similar);
  }
};

constexpr uint64_t kMaxPostings = 1 << 16;  // that are read for a set, of the rarest features first
constexpr size_t kMaxComparedSets = 256;    // with which a set is compared then
constexpr size_t kMaxIndexed = 1 << 24;     // features of the sets of a group that stay; of more,
                                            // those with the lesser hashes are indexed

// Groups of sets, each in the order in which they are decided: row r has the set numbers[r], and
// rows with equal digests may be equal. Rows with a flag in `stays` (which may be null) stay
// without a decision.
struct ContainmentGroups {
  SetsOfFeatures sets;
  const uint64_t* numbers;
  const uint64_t* digests;
  const uint8_t* stays;
  const uint64_t* lims;
  uint64_t count;
};

// In the order of a group, a set goes if the rule lets it go for one before it that stays: for an
// equal one, or else for the one that contains most of it, the first of several. Writes the row
// that stays for each row, its own if it stays. False when memory runs out; a call that is stopped
// has done a part.
bool decide_groups(const ContainmentGroups& groups, const ContainmentRule& rule, uint64_t* kept,
                   Stopper* stop);

// The features that two sets share.
uint64_t count_shared(const SetsOfFeatures& sets, uint64_t a, uint64_t b);

// Whether set b has a share of the features of set a.
bool contains_share(const SetsOfFeatures& sets, uint64_t a, uint64_t b, double share);

}  // namespace fpstore
