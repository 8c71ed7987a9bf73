#include "search/nearest.hpp"

#include <algorithm>
#include <cstdlib>

namespace fpstore {

namespace {

bool is_nearer(const Match& a, const Match& b) {
  return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
}

constexpr uint64_t kFirstRoom = 16;

}  // namespace

bool start_nearest(Nearest* nearest, uint64_t query_count, uint64_t limit, unsigned radius) {
  nearest->queries = static_cast<NearestQuery*>(std::calloc(query_count ? query_count : 1, sizeof(NearestQuery)));
  if (!nearest->queries) return false;
  nearest->query_count = query_count;
  nearest->limit = limit;
  for (uint64_t q = 0; q < query_count; ++q) nearest->queries[q].bound = radius;
  return true;
}

void release(Nearest* nearest) {
  for (uint64_t q = 0; q < nearest->query_count; ++q) std::free(nearest->queries[q].heap);
  std::free(nearest->queries);
  *nearest = Nearest{};
}

bool keep(Nearest* nearest, const Match& match) {
  NearestQuery& q = nearest->queries[match.query];
  const bool full = q.count == nearest->limit;
  if (match.distance > q.bound || (full && q.more && !is_nearer(match, q.heap[0]))) return true;
  if (std::binary_search(nearest->absent, nearest->absent + nearest->absent_count, match.fingerprint)) return true;
  if (full) {
    q.more = true;
    if (is_nearer(match, q.heap[0])) {
      std::pop_heap(q.heap, q.heap + q.count, is_nearer);
      q.heap[q.count - 1] = match;
      std::push_heap(q.heap, q.heap + q.count, is_nearer);
    }
    q.bound = q.heap[0].distance;
    return true;
  }
  if (q.count == q.capacity) {
    const uint64_t room = std::min(nearest->limit, q.capacity ? 2 * q.capacity : kFirstRoom);
    void* const p = std::realloc(q.heap, room * sizeof(Match));
    if (!p) return false;
    q.heap = static_cast<Match*>(p);
    q.capacity = room;
  }
  q.heap[q.count++] = match;
  std::push_heap(q.heap, q.heap + q.count, is_nearer);
  return true;
}

bool hand_over(Nearest* nearest, Sink* sink) {
  for (uint64_t i = 0; i < nearest->query_count; ++i) {
    NearestQuery& q = nearest->queries[i];
    for (uint64_t m = 0; m < q.count; ++m) {
      if (sink->count == sink->capacity && !grow(sink)) return false;
      sink->matches[sink->count++] = q.heap[m];
    }
    std::free(q.heap);
    q.heap = nullptr;
    q.count = q.capacity = 0;
  }
  return true;
}

}  // namespace fpstore
