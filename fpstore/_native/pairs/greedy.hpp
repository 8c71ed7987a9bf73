// Groups around representatives, for those who want no chains: every member is within the radius of the representative of its group.
#pragma once
#include "pairs/join.hpp"

namespace fpstore {
namespace {

// In the order of a set, a row that is in no group yet becomes a representative, and takes all rows behind it that are in no group and
// within the radius of it. The work grows with the rows of a set times its representatives.
template <unsigned W>
bool group_rows(const Grouping& sets, uint64_t* representatives, Stopper* stop) {
  using Row = typename RowOf<W>::type;
  const Row* const all = rows<Row>(sets.rows);
  Pace pace{stop};
  for (uint64_t s = 0; s < sets.count; ++s) {
    uint64_t left = sets.lims[s + 1] - sets.lims[s];
    for (uint64_t i = 0; i < left; ++i) sets.waiting[i] = sets.lims[s] + i;
    while (left) {
      if (pace.stopped(left)) return false;
      const uint64_t chosen = sets.waiting[0];
      const Row row = all[chosen];
      uint64_t kept = 0;
      for (uint64_t i = 0; i < left; ++i) {
        const uint64_t place = sets.waiting[i];
        if (ones(row ^ all[place]) <= sets.radius) representatives[place] = chosen;
        else sets.waiting[kept++] = place;
      }
      left = kept;
    }
  }
  return true;
}

}  // namespace
}  // namespace fpstore
