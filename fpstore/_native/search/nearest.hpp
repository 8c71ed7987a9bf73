// The nearest matches of each query, in memory that is bounded by how many are kept.
#pragma once
#include "search/sink.hpp"

namespace fpstore {

struct NearestQuery {
  void* heap;  // of matches, the farthest first; ties by fingerprint
  uint64_t count;
  uint64_t capacity;
  uint32_t bound;  // what is farther than this is not kept
  bool more;       // a match within the radius is not kept
};

// What keep_nearest() takes a match for.
struct Nearest {
  NearestQuery* queries = nullptr;
  uint64_t query_count = 0;
  uint64_t limit = 0;
  unsigned words = 1;  // of a fingerprint
  // Fingerprints that are no matches, ascending.
  const uint64_t* absent = nullptr;  // rows
  uint64_t absent_count = 0;
};

// Makes room for queries of which each keeps at most limit matches within the radius, of
// fingerprints of `words` words; false when memory runs out.
bool start_nearest(Nearest* nearest, unsigned words, uint64_t query_count, uint64_t limit,
                   unsigned radius);
void release(Nearest* nearest);

// Keeps a match that is not farther than its query's bound, if it is among the nearest so far. Once
// there were more than limit, the bound is the distance of the farthest that is kept. False when
// memory runs out.
template <class Row>
bool keep_nearest(Nearest* nearest, const Match<Row>& match);

// Moves what was kept to a sink; false when memory runs out.
bool hand_over(Nearest* nearest, Sink* sink);

}  // namespace fpstore
