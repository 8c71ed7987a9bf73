// Scans: the distance of every entry to every query.
#pragma once
#include "format/block_decode.hpp"
#include "search/matches.hpp"

namespace fpstore {
namespace {

template <class Isa>
Status scan(const TableView& t, const uint64_t* queries, size_t query_count, unsigned radius, uint64_t b0, uint64_t b1,
            Sink* sink, Stopper* stop, Fault* fault) {
  return each_block<Isa>(t, b0, b1, fault, [&](uint64_t b, const uint64_t* values, uint32_t count) {
    if (__builtin_expect(should_stop(stop, kBlockWork + count * query_count), 0)) return interrupted(fault);
    for (size_t q = 0; q < query_count; ++q) {
      const ScanQuery query{&t.inverse, queries[q], apply(t.forward, queries[q]), static_cast<uint32_t>(q), radius, sink};
      if (!Isa::match_values(query, values, count)) return no_memory(b, fault);
    }
    return Status::ok;
  });
}

}  // namespace
}  // namespace fpstore
