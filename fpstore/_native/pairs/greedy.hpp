// Groups around representatives, for those who want no chains: every member is within the radius of
// the representative of its group.
#pragma once
#include "pairs/join.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// In the order of a set, a row that is farther than the radius from all representatives before it
// becomes one. Each other row is in the group of the representative that is nearest to it, the
// first of several. The work grows with the rows of a set times its representatives.
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
      representatives[chosen] = chosen;
      uint64_t kept = 0;
      for (uint64_t i = 0; i < left; ++i) {
        const uint64_t place = sets.waiting[i];
        if (ones(row ^ all[place]) > sets.radius)
          sets.waiting[kept++] = place;
        else if (i)
          representatives[place] = UINT64_MAX;
      }
      left = kept;
    }
    uint64_t chosen = 0;
    for (uint64_t place = sets.lims[s]; place < sets.lims[s + 1]; ++place)
      if (representatives[place] == place) sets.waiting[chosen++] = place;
    for (uint64_t place = sets.lims[s]; place < sets.lims[s + 1]; ++place) {
      if (representatives[place] == place) continue;
      if (pace.stopped(chosen)) return false;
      unsigned least = UINT32_MAX;
      for (uint64_t i = 0; i < chosen; ++i) {
        const unsigned distance = ones(all[sets.waiting[i]] ^ all[place]);
        if (distance >= least) continue;
        least = distance;
        representatives[place] = sets.waiting[i];
      }
    }
  }
  return true;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
