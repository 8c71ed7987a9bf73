// Links within groups of rows that may be near each other, such as those that share the key of a
// band.
#pragma once
#include "pairs/join.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// Compares every two rows of a group that have not the same label, and gives those that lie within
// the radius one label, which they share with all that are linked with them. Writes the members of
// one pair for each time that labels become one; returns how many. `links` has room for two members
// less than twice the rows.
template <unsigned W>
uint64_t link_group(const uint64_t* group, const uint64_t* members, uint64_t n, unsigned radius,
                    uint32_t* labels, uint64_t* links) {
  using Row = typename RowOf<W>::type;
  const Row* const all = rows<Row>(group);
  uint64_t count = 0;
  for (uint64_t i = 1; i < n; ++i) {
    const Row row = all[i];
    for (uint64_t j = 0; j < i; ++j) {
      if (labels[i] == labels[j] || ones(row ^ all[j]) > radius) continue;
      links[2 * count] = members[i];
      links[2 * count++ + 1] = members[j];
      for (uint64_t k = 0, old = labels[i], label = labels[j]; k < n; ++k)
        if (labels[k] == old) labels[k] = static_cast<uint32_t>(label);
    }
  }
  return count;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
