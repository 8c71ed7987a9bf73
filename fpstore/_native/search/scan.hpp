// Scans: the distance of every entry to every query.
#pragma once
#include "format/block_decode.hpp"
#include "search/matches.hpp"

namespace fpstore {
namespace {

template <class Isa>
Status scan(const TableView& t, const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink,
            Fault* fault) {
  Nearest* const nearest = options.nearest;
  Sink some;  // the matches of one block and query, if only the nearest are kept
  const Status status = each_block<Isa>(t, range, fault, [&](uint64_t b, const uint64_t* values, uint32_t count) {
    if (__builtin_expect(should_stop(options.stop, kBlockWork + count * queries.count), 0)) return interrupted(fault);
    for (size_t q = 0; q < queries.count; ++q) {
      const uint64_t word = queries.words[q];
      const unsigned radius = nearest ? nearest->queries[q].bound : options.radius;
      const ScanQuery query{&t.inverse, word, apply(t.forward, word), static_cast<uint32_t>(q), radius, nearest ? &some : sink};
      if (!Isa::match_values(query, values, count)) return no_memory(b, fault);
      for (uint64_t i = 0; i < some.count; ++i)
        if (!keep(nearest, some.matches[i])) return no_memory(b, fault);
      some.count = 0;
    }
    return Status::ok;
  });
  release(&some);
  return status;
}

}  // namespace
}  // namespace fpstore
