// Merges the matches of the tables and of a delta, query by query.
#pragma once
#include "delta/delta.hpp"

namespace fpstore {

// Matches by query, in the order of distances and fingerprints: query q has those from lims[q] to
// lims[q + 1].
template <class Row, class Distance>
struct MatchColumns {
  const int64_t* lims;
  const Row* fingerprints;
  const Distance* distances;
};

// Merges the matches of n queries, without those of the tables that are absent now; presence has
// what the delta says of each. Returns how many there are.
template <class Row, class Distance>
int64_t merge_matches(const MatchColumns<Row, Distance>& tables, const uint8_t* presence,
                      const MatchColumns<Row, Distance>& delta, size_t n, int64_t* lims,
                      Row* fingerprints, Distance* distances) {
  int64_t at = 0;
  const auto append = [&](const MatchColumns<Row, Distance>& from, int64_t i) {
    fingerprints[at] = from.fingerprints[i];
    distances[at++] = from.distances[i];
  };
  const auto delta_is_first = [&](int64_t j, int64_t i) {
    const Distance a = delta.distances[j], b = tables.distances[i];
    return a != b ? a < b : delta.fingerprints[j] < tables.fingerprints[i];
  };
  lims[0] = 0;
  for (size_t q = 0; q < n; ++q) {
    int64_t j = delta.lims[q];
    const int64_t end = delta.lims[q + 1];
    for (int64_t i = tables.lims[q]; i < tables.lims[q + 1]; ++i) {
      if (static_cast<Presence>(presence[i]) == Presence::absent) continue;
      for (; j < end && delta_is_first(j, i); ++j) append(delta, j);
      append(tables, i);
    }
    for (; j < end; ++j) append(delta, j);
    lims[q + 1] = at;
  }
  return at;
}

}  // namespace fpstore
