// Links: of all pairs of a set that meet in a table and lie within the radius, as many as connect the same rows.
#pragma once
#include "columns/masks.hpp"
#include "pairs/join.hpp"

namespace fpstore {
namespace {

// A search under way. The rows that no search has reached stand first in their bucket; those that were reached stand behind them.
// Each row that was reached asks once for the rows near it that were not, which are reached then: all that are connected by pairs of
// this table are reached from the same start, by a tree of links. A row is compared with none that was reached before it, so that
// rows which are all near each other cost no more than rows that are not.
template <class Isa, unsigned W>
struct LinkFlow {
  using Row = typename RowOf<W>::type;
  const LinkTable& table;
  LinkPlace& at;
  PairSink* sink;
  Pace pace;
  Row* all;

  // Takes the next row that asks: one that was reached, or a new start; false when there is none.
  bool next() {
    if (at.waiting) {
      at.row = table.stack[--at.waiting];
    } else {
      while (at.bucket < at.end && table.live[at.bucket] == table.starts[at.bucket]) ++at.bucket;
      if (at.bucket == at.end) return false;
      at.row = --table.live[at.bucket];
    }
    at.asking = true;
    at.flipped = at.mask = 0;
    at.begun = false;
    return true;
  }

  // Moves a row behind those that were not reached, and puts it on the stack.
  void reach(uint64_t bucket, uint64_t place) {
    const uint64_t last = --table.live[bucket];
    const Row row = all[place];
    all[place] = all[last];
    all[last] = row;
    const uint16_t tag = table.tags[place];
    table.tags[place] = table.tags[last];
    table.tags[last] = tag;
    table.stack[at.waiting++] = last;
  }

  // Compares the row with those of a bucket that were not reached, from the last to the first: what moves to the place of a row that
  // is reached has been compared. False when it did not end.
  bool ask(uint64_t bucket, unsigned limit) {
    if (!at.begun) {
      at.upto = table.live[bucket];
      at.begun = true;
    }
    const uint64_t start = table.starts[bucket];
    if (at.upto == start) return !pace.stopped(kBucketWork);
    const Row row = all[at.row];
    const unsigned tag = table.tags[at.row];
    uint16_t near[kTagsAtOnce];
    while (at.upto > start) {
      const uint64_t n = at.upto - start < kTagsAtOnce ? at.upto - start : kTagsAtOnce, first = at.upto - n;
      if (sink->room - sink->count < n || pace.stopped(n + kBucketWork)) return false;
      unsigned count = Isa::near_tags(reinterpret_cast<const uint8_t*>(table.tags + first), static_cast<unsigned>(n), tag, table.tag_mask,
                                      limit, near);
      while (count) {
        const uint64_t place = first + near[--count];
        const Row difference = row ^ all[place];
        const unsigned distance = ones(difference);
        if (distance > table.radius) continue;
        const size_t k = sink->count++;
        const Row a = apply(table.inverse, row);
        rows<Row>(sink->a)[k] = a;
        rows<Row>(sink->b)[k] = a ^ apply(table.inverse, difference);
        sink->distances[k] = static_cast<uint16_t>(distance);
        reach(bucket, place);
      }
      at.upto = first;
    }
    return true;
  }

  bool run() {
    const unsigned most = table.flips < table.bucket_bits ? table.flips : table.bucket_bits;
    const uint32_t masks = uint32_t{1} << table.bucket_bits;
    while (at.asking || next()) {
      const uint64_t own = table.bucket_bits ? lead(all[at.row]) >> (64 - table.bucket_bits) : 0;
      for (; at.flipped <= most; ++at.flipped, at.mask = first_mask(at.flipped)) {
        const unsigned limit = table.both - at.flipped < kTagBits ? table.both - at.flipped : kTagBits;
        for (; at.mask < masks; at.mask = next_mask(at.mask, masks)) {
          if (!ask(own ^ at.mask, limit)) return false;
          at.begun = false;
        }
      }
      at.asking = false;
    }
    return true;
  }
};

template <class Isa, unsigned W>
bool link_rows(const LinkTable& table, LinkPlace* place, PairSink* sink, Stopper* stop) {
  using Row = typename RowOf<W>::type;
  return LinkFlow<Isa, W>{table, *place, sink, Pace{stop}, rows<Row>(table.rows)}.run();
}

}  // namespace
}  // namespace fpstore
