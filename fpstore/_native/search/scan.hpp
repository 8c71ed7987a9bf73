// Scans: the distance of every entry to every query, and of every row of an array to one.
#pragma once
#include "format/block_decode.hpp"
#include "isa/kernels.hpp"
#include "isa/portable.hpp"
#include "search/matches.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class Blocks>
Status scan_blocks(const TableView& t, const BlockRange& range, const Queries& queries,
                   const ScanOptions& options, Sink* sink, Fault* fault) {
  using W = typename Blocks::W;
  using Row = typename W::Row;
  Nearest* const nearest = options.nearest;
  Sink some{};  // the matches of one block and query, if only the nearest are kept
  const Status status = each_block<Blocks>(
      t, range, fault, [&](const typename Blocks::OpenBlock& unit, const uint64_t* values) {
        const uint32_t count = unit.head.count;
        if (FPSTORE_UNLIKELY(should_stop(options.stop, kBlockWork + count * queries.count)))
          return interrupted(fault);
        const LeadingWords entries{values, rest_at<W>(block_at(t, unit.block), unit.head, 0), count,
                                   unit.block};
        for (size_t q = 0; q < queries.count; ++q) {
          const Row row = rows<Row>(queries.words)[q];
          const unsigned radius = nearest ? nearest->queries[q].bound : options.radius;
          const ScanQuery<W> query{&t.inverse,
                                   row,
                                   apply(t.forward, row),
                                   static_cast<uint32_t>(q),
                                   radius,
                                   nearest ? &some : sink};
          if (!Blocks::match_values(query, entries)) return no_memory(fault);
          for (uint64_t i = 0; i < some.count; ++i)
            if (!keep_nearest(nearest, matches<Row>(some)[i])) return no_memory(fault);
          some.count = 0;
        }
        return Status::ok;
      });
  release(&some);
  return status;
}

// The places of the rows within the radius of a query.
template <class Isa>
size_t within_radius(const uint64_t* keys, size_t n, const uint64_t* query, unsigned radius,
                     uint32_t* places) {
  using W = typename Isa::W;
  if constexpr (!W::kWide) {
    return Isa::within_radius(keys, n, *query, radius, places);
  } else {
    size_t count = 0;
    for (size_t i = 0; i < n; ++i, keys += W::kWords) {
      unsigned distance = 0;
      for (unsigned word = 0; word < W::kWords; ++word) distance += ones(keys[word] ^ query[word]);
      places[count] = static_cast<uint32_t>(i);
      count += distance <= radius;
    }
    return count;
  }
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
