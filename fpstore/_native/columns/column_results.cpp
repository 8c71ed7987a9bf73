#include "columns/column_results.hpp"

#include <algorithm>
#include <new>
#include <vector>

#include "search/results.hpp"

namespace fpstore {

Status order_column_matches(Sink* sink, uint64_t query_count, int64_t* lims, uint64_t* values, uint16_t* distances, Stopper* stop) {
  constexpr uint64_t kSteps = 1 << 12;
  uint64_t steps = 0;
  const auto step = [&] {
    if (++steps % kSteps == 0 && should_stop(stop, kSteps)) throw Interrupted();
  };
  try {
    std::fill(lims, lims + query_count + 1, 0);
    for (uint64_t i = 0; i < sink->count; ++i, step()) ++lims[sink->matches[i].query + 1];
    for (uint64_t q = 0; q < query_count; ++q) lims[q + 1] += lims[q];
    std::vector<int64_t> next(lims, lims + query_count);
    std::vector<Match> ordered(sink->count);
    for (uint64_t i = 0; i < sink->count; ++i, step()) ordered[next[sink->matches[i].query]++] = sink->matches[i];
    for (uint64_t q = 0; q < query_count; ++q)
      std::sort(ordered.begin() + lims[q], ordered.begin() + lims[q + 1], [&](const Match& a, const Match& b) {
        step();
        return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
      });
    for (uint64_t i = 0; i < sink->count; ++i, step()) {
      values[i] = ordered[i].fingerprint;
      distances[i] = static_cast<uint16_t>(ordered[i].distance);
    }
    return Status::ok;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  } catch (const Interrupted&) {
    return Status::interrupted;
  }
}

}  // namespace fpstore
