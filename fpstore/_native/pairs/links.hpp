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

  // Takes the next row that asks: one that was reached, or a new start in a bucket before the end; false when there is none.
  bool next(uint64_t end) {
    if (at.waiting) {
      at.row = table.stack[--at.waiting];
    } else {
      while (at.bucket < end && table.live[at.bucket] == table.starts[at.bucket]) ++at.bucket;
      if (at.bucket == end) return false;
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
        if (ones(difference) > table.radius) continue;
        add(row, difference);
        reach(bucket, place);
      }
      at.upto = first;
    }
    return true;
  }

  // Adds a link of rows with this difference, unless an earlier table connects them.
  void add(const Row& row, const Row& difference) {
    const Row unpermuted = apply(table.inverse, difference);
    if (met_before(table.rules, table.table, unpermuted)) return;
    const size_t k = sink->count++;
    const Row a = apply(table.inverse, row);
    rows<Row>(sink->a)[k] = a;
    rows<Row>(sink->b)[k] = a ^ unpermuted;
    sink->distances[k] = static_cast<uint16_t>(ones(difference));
  }

  // Searches from the rows of the buckets before the end; false when it did not end.
  bool search(uint64_t end) {
    const TableRule& own = table.rules[table.table];
    const unsigned most = own.flips < table.bucket_bits ? own.flips : table.bucket_bits;
    const uint32_t masks = uint32_t{1} << table.bucket_bits;
    while (at.asking || next(end)) {
      const uint64_t bucket = table.bucket_bits ? lead(all[at.row]) >> (64 - table.bucket_bits) : 0;
      for (; at.flipped <= most; ++at.flipped, at.mask = first_mask(at.flipped)) {
        const unsigned limit = limit_of(own, at.flipped);
        for (; at.mask < masks; at.mask = next_mask(at.mask, masks)) {
          if (!ask(bucket ^ at.mask, limit)) return false;
          at.begun = false;
        }
      }
      at.asking = false;
    }
    return true;
  }

  // Links the rows of a small bucket by all its pairs, which is faster than a search, if they are fewer than the rows.
  bool linked_by_pairs(uint64_t start, unsigned n, unsigned limit) {
    uint16_t left[kTagsAtOnce], right[kTagsAtOnce];
    unsigned row = 0;
    const uint8_t* const tags = reinterpret_cast<const uint8_t*>(table.tags + start);
    const unsigned count = Isa::template near_pairs<Isa>(tags, n, &row, table.tag_mask, limit, left, right, kTagsAtOnce);
    if (row < n) return false;
    unsigned kept = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (ones(all[start + left[i]] ^ all[start + right[i]]) > table.radius) continue;
      left[kept] = left[i];
      right[kept++] = right[i];
    }
    if (kept >= n) return false;
    for (unsigned i = 0; i < kept; ++i) add(all[start + left[i]], all[start + left[i]] ^ all[start + right[i]]);
    return true;
  }

  // The same bucket by bucket, where no bit of the bucket is flipped: each search stays in its bucket.
  bool search_each() {
    const unsigned limit = limit_of(table.rules[table.table], 0);
    while (at.bucket < at.end) {
      const uint64_t start = table.starts[at.bucket], n = table.starts[at.bucket + 1] - start;
      if (!at.searching) {
        if (sink->room - sink->count < kTagsAtOnce || pace.stopped(n + kBucketWork)) return false;
        if (n < 2 || (n <= kTagsAtOnce && linked_by_pairs(start, static_cast<unsigned>(n), limit))) {
          ++at.bucket;
          continue;
        }
        table.live[at.bucket] = start + n;
        at.searching = true;
      }
      if (!search(at.bucket + 1)) return false;
      at.searching = false;
    }
    return true;
  }

  bool run() { return table.rules[table.table].flips && table.bucket_bits ? search(at.end) : search_each(); }

 private:
  static unsigned limit_of(const TableRule& own, unsigned flipped) {
    return own.both - flipped < kTagBits ? own.both - flipped : kTagBits;
  }
};

template <class Isa, unsigned W>
bool link_rows(const LinkTable& table, LinkPlace* place, PairSink* sink, Stopper* stop) {
  using Row = typename RowOf<W>::type;
  return LinkFlow<Isa, W>{table, *place, sink, Pace{stop}, rows<Row>(table.rows)}.run();
}

}  // namespace
}  // namespace fpstore
