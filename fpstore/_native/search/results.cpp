#include "search/results.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

namespace fpstore {

namespace {

// Called once for each of many small steps.
class Steps {
 public:
  explicit Steps(Stopper* stop) : stop_(stop) {}
  void take() {
    if (--left_) return;
    left_ = kSteps;
    if (should_stop(stop_, kSteps)) throw Interrupted();
  }

 private:
  static constexpr uint32_t kSteps = 1 << 12;
  Stopper* stop_;
  uint32_t left_ = kSteps;
};

}  // namespace

bool grow(Sink* sink) {
  uint64_t capacity = sink->capacity ? sink->capacity * 2 : 256;
  if (capacity > sink->limit) capacity = sink->limit;
  if (capacity <= sink->capacity) return false;
  void* p = std::realloc(sink->matches, capacity * sizeof(Match));
  if (!p) return false;
  sink->matches = static_cast<Match*>(p);
  sink->capacity = capacity;
  return true;
}

void release(Sink* sink) {
  std::free(sink->matches);
  *sink = Sink{};
}

Status order_matches(const Sink& sink, uint64_t query_count, int64_t* lims, uint64_t* fingerprints, uint8_t* distances,
                     Stopper* stop) {
  try {
    Steps steps(stop);
    std::fill(lims, lims + query_count + 1, 0);
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) ++lims[sink.matches[i].query + 1];
    for (uint64_t q = 0; q < query_count; ++q) lims[q + 1] += lims[q];
    std::vector<int64_t> next(lims, lims + query_count);
    std::vector<Match> ordered(sink.count);
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) ordered[next[sink.matches[i].query]++] = sink.matches[i];
    for (uint64_t q = 0; q < query_count; ++q)
      std::sort(ordered.begin() + lims[q], ordered.begin() + lims[q + 1], [&](const Match& a, const Match& b) {
        steps.take();
        return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
      });
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) {
      fingerprints[i] = ordered[i].fingerprint;
      distances[i] = static_cast<uint8_t>(ordered[i].distance);
    }
    return Status::ok;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  } catch (const Interrupted&) {
    return Status::interrupted;
  }
}

uint64_t group_pairs(uint64_t* pairs, uint64_t n, uint64_t* keys, uint64_t* ids, uint64_t* id_count, Stopper* stop) {
  uint64_t groups = 0, written = 0;
  Steps steps(stop);
  const auto same = [&](uint64_t a, uint64_t b) {
    steps.take();
    return a == b;
  };
  for (uint64_t i = 0; i < n;) {
    const uint64_t key = pairs[2 * i];
    const uint64_t start = written;
    bool ascending = true;
    for (; i < n && pairs[2 * i] == key; ++i, steps.take()) {
      const uint64_t id = pairs[2 * i + 1];
      if (written > start && ids[written - 1] >= id) ascending = false;
      ids[written++] = id;
    }
    if (!ascending) {
      std::sort(ids + start, ids + written, [&](uint64_t a, uint64_t b) {
        steps.take();
        return a < b;
      });
      written = static_cast<uint64_t>(std::unique(ids + start, ids + written, same) - ids);
    }
    keys[groups] = key;
    pairs[groups++] = written - start;  // groups <= i: the pair that stood here has been read
  }
  *id_count = written;
  return groups;
}

}  // namespace fpstore
