// Queries, and where their matches go.
#pragma once
#include "format/row.hpp"

namespace fpstore {

struct Queries {
  const uint64_t* words;  // of rows
  size_t count;
};

template <class Row>
struct Match {
  Row fingerprint;
  uint32_t query;
  uint32_t distance;
};

// Matches of one kind of row. Grows by doubling, to limit at most, through grow(), which is
// compiled once, outside the per-instruction-set files.
struct Sink {
  void* matches = nullptr;
  uint64_t count = 0;
  uint64_t capacity = 0;
  uint64_t limit = UINT64_MAX;
};
bool grow(Sink* sink, size_t match_bytes);
void release(Sink* sink);

template <class Row>
static inline Match<Row>* matches(const Sink& sink) {
  return static_cast<Match<Row>*>(sink.matches);
}

// Adds a match; false when memory runs out.
template <class Row>
static inline bool push(Sink* sink, const Row& fingerprint, uint32_t query, unsigned distance) {
  if (sink->count == sink->capacity && !grow(sink, sizeof(Match<Row>))) return false;
  matches<Row>(*sink)[sink->count++] = Match<Row>{fingerprint, query, distance};
  return true;
}

}  // namespace fpstore
