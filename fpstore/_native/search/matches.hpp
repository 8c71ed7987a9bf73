// Where the matches of probes and scans go.
#pragma once
#include "search/request.hpp"
#include "search/sink.hpp"

namespace fpstore {
namespace {

struct Emitter {
  const TableProbe* probes;
  ProbeOptions options;
  Sink* sink;
};

// One prefix look-up of a query in a table, on its way through the stages.
struct Item {
  const TableProbe* probe;
  uint64_t target;
  uint64_t base;  // the permuted query
  uint64_t low;   // part of the key index to search
  uint64_t high;
  uint64_t first;  // the blocks that may hold entries with the prefix, up to end
  uint64_t end;
  uint64_t query;
  uint32_t index;
};

// Reports an entry, unless the pair also meets in an earlier table: it is left to that one. False when memory runs out.
inline bool emit(const Emitter& out, const Item& item, uint64_t entry, unsigned distance) {
  const uint64_t difference = apply(item.probe->table->inverse, entry ^ item.base);
  for (const TableProbe* earlier = out.probes; earlier < item.probe; ++earlier)
    if (static_cast<unsigned>(__builtin_popcountll(difference & earlier->condition)) <= earlier->flips) return true;
  if (out.sink->count == out.sink->capacity && !grow(out.sink)) return false;
  out.sink->matches[out.sink->count++] = Match{item.query ^ difference, item.index, distance};
  return true;
}

// A query of a scan, whose matches go to the sink.
struct ScanQuery {
  const Permutation* inverse;
  uint64_t query;
  uint64_t permuted;
  uint32_t index;
  unsigned radius;
  Sink* sink;
};

// Reports an entry of a scan. False when memory runs out.
inline bool emit(const ScanQuery& q, uint64_t entry) {
  if (q.sink->count == q.sink->capacity && !grow(q.sink)) return false;
  const unsigned distance = static_cast<unsigned>(__builtin_popcountll(entry ^ q.permuted));
  q.sink->matches[q.sink->count++] = Match{q.query ^ apply(*q.inverse, entry ^ q.permuted), q.index, distance};
  return true;
}

}  // namespace
}  // namespace fpstore
