#include "search/nearest.hpp"

#include <algorithm>
#include <cstdlib>

namespace fpstore {

namespace {

template <class Row>
bool is_nearer(const Match<Row>& a, const Match<Row>& b) {
  return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
}

constexpr uint64_t kFirstRoom = 16;

}  // namespace

bool start_nearest(Nearest* nearest, unsigned words, uint64_t query_count, uint64_t limit,
                   unsigned radius) {
  nearest->queries =
      static_cast<NearestQuery*>(std::calloc(query_count ? query_count : 1, sizeof(NearestQuery)));
  if (!nearest->queries) return false;
  nearest->query_count = query_count;
  nearest->limit = limit;
  nearest->words = words;
  for (uint64_t q = 0; q < query_count; ++q) nearest->queries[q].bound = radius;
  return true;
}

void release(Nearest* nearest) {
  for (uint64_t q = 0; q < nearest->query_count; ++q) std::free(nearest->queries[q].heap);
  std::free(nearest->queries);
  *nearest = Nearest{};
}

template <class Row>
bool keep_nearest(Nearest* nearest, const Match<Row>& match) {
  NearestQuery& q = nearest->queries[match.query];
  Match<Row>* heap = static_cast<Match<Row>*>(q.heap);
  const bool full = q.count == nearest->limit;
  if (match.distance > q.bound || (full && q.more && !is_nearer(match, heap[0]))) return true;
  const Row* const absent = rows<Row>(nearest->absent);
  if (std::binary_search(absent, absent + nearest->absent_count, match.fingerprint)) return true;
  if (full) {
    q.more = true;
    if (is_nearer(match, heap[0])) {
      std::pop_heap(heap, heap + q.count, is_nearer<Row>);
      heap[q.count - 1] = match;
      std::push_heap(heap, heap + q.count, is_nearer<Row>);
    }
    q.bound = heap[0].distance;
    return true;
  }
  if (q.count == q.capacity) {
    const uint64_t room = std::min(nearest->limit, q.capacity ? 2 * q.capacity : kFirstRoom);
    void* const p = std::realloc(q.heap, room * sizeof(Match<Row>));
    if (!p) return false;
    q.heap = p;
    heap = static_cast<Match<Row>*>(p);
    q.capacity = room;
  }
  heap[q.count++] = match;
  std::push_heap(heap, heap + q.count, is_nearer<Row>);
  return true;
}

template bool keep_nearest(Nearest*, const Match<uint64_t>&);
template bool keep_nearest(Nearest*, const Match<Wide<2>>&);
template bool keep_nearest(Nearest*, const Match<Wide<4>>&);

bool hand_over(Nearest* nearest, Sink* sink) {
  return with_row(nearest->words, [&](auto row) {
    for (uint64_t i = 0; i < nearest->query_count; ++i) {
      NearestQuery& q = nearest->queries[i];
      const auto* const heap = static_cast<const Match<decltype(row)>*>(q.heap);
      for (uint64_t m = 0; m < q.count; ++m)
        if (!push(sink, heap[m].fingerprint, heap[m].query, heap[m].distance)) return false;
      std::free(q.heap);
      q.heap = nullptr;
      q.count = q.capacity = 0;
    }
    return true;
  });
}

}  // namespace fpstore
