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

bool grow(Sink* sink, size_t match_bytes) {
  uint64_t capacity = sink->capacity ? sink->capacity * 2 : 256;
  if (capacity > sink->limit) capacity = sink->limit;
  if (capacity <= sink->capacity) return false;
  void* p = std::realloc(sink->matches, capacity * match_bytes);
  if (!p) return false;
  sink->matches = p;
  sink->capacity = capacity;
  return true;
}

void release(Sink* sink) {
  std::free(sink->matches);
  *sink = Sink{};
}

namespace {

template <class Row, class Distance>
Status order_rows(const Sink& sink, uint64_t query_count, int64_t* lims, Row* fingerprints, Distance* distances, Stopper* stop) {
  const Match<Row>* const found = matches<Row>(sink);
  try {
    Steps steps(stop);
    std::fill(lims, lims + query_count + 1, 0);
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) ++lims[found[i].query + 1];
    for (uint64_t q = 0; q < query_count; ++q) lims[q + 1] += lims[q];
    std::vector<int64_t> next(lims, lims + query_count);
    std::vector<Match<Row>> ordered(sink.count);
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) ordered[next[found[i].query]++] = found[i];
    for (uint64_t q = 0; q < query_count; ++q)
      std::sort(ordered.begin() + lims[q], ordered.begin() + lims[q + 1], [&](const Match<Row>& a, const Match<Row>& b) {
        steps.take();
        return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
      });
    for (uint64_t i = 0; i < sink.count; ++i, steps.take()) {
      fingerprints[i] = ordered[i].fingerprint;
      distances[i] = static_cast<Distance>(ordered[i].distance);
    }
    return Status::ok;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  } catch (const Interrupted&) {
    return Status::interrupted;
  }
}

}  // namespace

namespace {

template <class Row>
void shift(Sink* sink, uint64_t first, uint32_t by) {
  for (uint64_t i = first; i < sink->count; ++i) matches<Row>(*sink)[i].query += by;
}

}  // namespace

void shift_queries(Sink* sink, unsigned words, uint64_t first, uint32_t by) {
  switch (words) {
    case 1: return shift<uint64_t>(sink, first, by);
    case 2: return shift<Wide<2>>(sink, first, by);
    default: return shift<Wide<4>>(sink, first, by);
  }
}

bool append(Sink* sink, const Sink& from, unsigned words, uint32_t by) {
  const auto add = [&](const auto* found) {
    for (uint64_t i = 0; i < from.count; ++i)
      if (!push(sink, found[i].fingerprint, found[i].query + by, found[i].distance)) return false;
    return true;
  };
  switch (words) {
    case 1: return add(matches<uint64_t>(from));
    case 2: return add(matches<Wide<2>>(from));
    default: return add(matches<Wide<4>>(from));
  }
}

Status order_matches(const Sink& sink, unsigned words, unsigned distance_bytes, uint64_t query_count, int64_t* lims,
                     uint64_t* fingerprints, void* distances, Stopper* stop) {
  const auto order = [&](auto* rows_out) {
    if (distance_bytes == 1) return order_rows(sink, query_count, lims, rows_out, static_cast<uint8_t*>(distances), stop);
    return order_rows(sink, query_count, lims, rows_out, static_cast<uint16_t*>(distances), stop);
  };
  switch (words) {
    case 1: return order(fingerprints);
    case 2: return order(rows<Wide<2>>(fingerprints));
    default: return order(rows<Wide<4>>(fingerprints));
  }
}

namespace {

template <class Row>
struct KeyAndId {
  Row key;
  uint64_t id;
};

template <class Row>
uint64_t group_rows(uint64_t* words, uint64_t n, Row* keys, uint64_t* ids, uint64_t* id_count, Stopper* stop) {
  const KeyAndId<Row>* const pairs = reinterpret_cast<const KeyAndId<Row>*>(words);
  uint64_t groups = 0, written = 0;
  Steps steps(stop);
  const auto same = [&](uint64_t a, uint64_t b) {
    steps.take();
    return a == b;
  };
  for (uint64_t i = 0; i < n;) {
    const Row key = pairs[i].key;
    const uint64_t start = written;
    bool ascending = true;
    for (; i < n && pairs[i].key == key; ++i, steps.take()) {
      const uint64_t id = pairs[i].id;
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
    words[groups++] = written - start;  // groups <= i: the pair that stood here has been read
  }
  *id_count = written;
  return groups;
}

}  // namespace

uint64_t group_pairs(uint64_t* pairs, unsigned words, uint64_t n, uint64_t* keys, uint64_t* ids, uint64_t* id_count,
                     Stopper* stop) {
  switch (words) {
    case 1: return group_rows(pairs, n, keys, ids, id_count, stop);
    case 2: return group_rows(pairs, n, rows<Wide<2>>(keys), ids, id_count, stop);
    default: return group_rows(pairs, n, rows<Wide<4>>(keys), ids, id_count, stop);
  }
}

}  // namespace fpstore
