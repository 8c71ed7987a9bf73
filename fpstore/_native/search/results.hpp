// From the matches of a probe, in table order, to the order in which they are handed out.
#pragma once
#include "isa/steps.hpp"
#include "search/sink.hpp"

namespace fpstore {

// Bytes of a distance in a column: fingerprints of 256 bits may differ in all of them.
constexpr unsigned distance_bytes(unsigned width) { return width < 256 ? 1 : 2; }

// Orders matches of rows of `words` words by (query, distance, fingerprint) into columns. lims has
// query_count + 1 places, and a distance takes distance_bytes. Batches of more than 8,192 queries
// are ordered on up to `threads` threads. Fails when memory runs out or when it is stopped.
Status order_matches(const Sink& sink, unsigned words, unsigned distance_bytes,
                     uint64_t query_count, int64_t* lims, uint64_t* fingerprints, void* distances,
                     unsigned threads, Stopper* stop);

// Adds `by` to the query number of each match from the first one on.
void shift_queries(Sink* sink, unsigned words, uint64_t first, uint32_t by);
// Makes room for count matches. False when memory runs out.
bool reserve(Sink* sink, unsigned words, uint64_t count);
// Copies matches to a place in another sink, which has room, and adds so much to their query
// numbers.
void copy_matches(const Sink& from, unsigned words, uint32_t by, uint64_t place, const Sink& to);

}  // namespace fpstore
