// Scans: the distance of every entry to every query.
#pragma once
#include "format/block_decode.hpp"
#include "search/matches.hpp"

namespace fpstore {
namespace {

template <class Blocks>
Status scan_blocks(const TableView& t, const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink,
            Fault* fault) {
  using W = typename Blocks::W;
  using Row = typename W::Row;
  Nearest* const nearest = options.nearest;
  Sink some{};  // the matches of one block and query, if only the nearest are kept
  const Status status = each_block<Blocks>(t, range, fault, [&](const typename Blocks::Opened& unit, const uint64_t* values) {
    const uint32_t count = unit.head.count;
    if (__builtin_expect(should_stop(options.stop, kBlockWork + count * queries.count), 0)) return interrupted(fault);
    const Leads entries{values, rest_at<W>(block_at(t, unit.block), unit.head, 0), count, unit.block};
    for (size_t q = 0; q < queries.count; ++q) {
      const Row row = rows<Row>(queries.words)[q];
      const unsigned radius = nearest ? nearest->queries[q].bound : options.radius;
      const ScanQuery<W> query{&t.inverse, row, apply(t.forward, row), static_cast<uint32_t>(q), radius, nearest ? &some : sink};
      if (!Blocks::match_values(query, entries)) return no_memory(unit.block, fault);
      for (uint64_t i = 0; i < some.count; ++i)
        if (!keep(nearest, matches<Row>(some)[i])) return no_memory(unit.block, fault);
      some.count = 0;
    }
    return Status::ok;
  });
  release(&some);
  return status;
}

}  // namespace
}  // namespace fpstore
