// Scans: the distance of every entry to every query.
#pragma once
#include "format/block_decode.hpp"
#include "search/matches.hpp"

namespace fpstore {
namespace {

template <class Isa>
Status scan(const TableView& t, const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink,
            Fault* fault) {
  return each_block<Isa>(t, range, fault, [&](uint64_t b, const uint64_t* values, uint32_t count) {
    if (__builtin_expect(should_stop(options.stop, kBlockWork + count * queries.count), 0)) return interrupted(fault);
    for (size_t q = 0; q < queries.count; ++q) {
      const uint64_t word = queries.words[q];
      const ScanQuery query{&t.inverse, word, apply(t.forward, word), static_cast<uint32_t>(q), options.radius, sink};
      if (!Isa::match_values(query, values, count)) return no_memory(b, fault);
    }
    return Status::ok;
  });
}

}  // namespace
}  // namespace fpstore
