// The order in which the matches of column tables are handed out.
#pragma once
#include "isa/runtime.hpp"
#include "search/sink.hpp"

namespace fpstore {

// Orders matches by (query, distance, fingerprint or row) into columns; lims has query_count + 1 places. Fails when memory runs out or
// when it is stopped.
Status order_column_matches(Sink* sink, uint64_t query_count, int64_t* lims, uint64_t* values, uint16_t* distances, Stopper* stop);

}  // namespace fpstore
