// From the matches of a probe, in table order, to the order in which they are handed out.
#pragma once
#include "isa/runtime.hpp"
#include "search/sink.hpp"

namespace fpstore {

// Thrown out of a long call that is to end early.
struct Interrupted {};

// Orders matches by (query, distance, fingerprint) into columns; lims has query_count + 1 places. Fails when memory runs out or when
// it is stopped.
Status order_matches(const Sink& sink, uint64_t query_count, int64_t* lims, uint64_t* fingerprints, uint8_t* distances,
                     Stopper* stop);

// For sorted pairs (key, id): the distinct keys, the distinct ids of each in ascending order one after the other, and, at the front
// of pairs itself, how many ids each key has. keys and ids need room for n; returns the number of keys. Throws Interrupted.
uint64_t group_pairs(uint64_t* pairs, uint64_t n, uint64_t* keys, uint64_t* ids, uint64_t* id_count, Stopper* stop);

}  // namespace fpstore
