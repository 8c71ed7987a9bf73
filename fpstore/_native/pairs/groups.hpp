// Links within groups of rows that may be near each other, such as those that share the key of a band.
#pragma once
#include "pairs/join.hpp"

namespace fpstore {
namespace {

// Compares every two members of a group that have not the same label, and gives those that lie within the radius one label, which they
// share with all that are linked with them. Writes the places of one pair in the group for each time that labels become one; returns how
// many. `links` has room for two places less than twice the members.
template <unsigned W>
uint64_t link_group(const uint64_t* all, const uint64_t* members, uint64_t n, unsigned radius, uint32_t* labels, uint64_t* links) {
  using Row = typename RowOf<W>::type;
  const Row* const rows_of_all = rows<Row>(all);
  uint64_t count = 0;
  for (uint64_t i = 1; i < n; ++i) {
    const Row row = rows_of_all[members[i]];
    for (uint64_t j = 0; j < i; ++j) {
      if (labels[i] == labels[j] || ones(row ^ rows_of_all[members[j]]) > radius) continue;
      links[2 * count] = members[i];
      links[2 * count++ + 1] = members[j];
      for (uint64_t k = 0, old = labels[i], label = labels[j]; k < n; ++k)
        if (labels[k] == old) labels[k] = static_cast<uint32_t>(label);
    }
  }
  return count;
}

}  // namespace
}  // namespace fpstore
