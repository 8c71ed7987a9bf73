// Links: of all pairs of a set that meet in a table and lie within the radius, as many as connect
// the same rows.
#pragma once
#include "columns/masks.hpp"
#include "pairs/join.hpp"
#include "pairs/sets.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kManyPairs =
    4;  // pairs of near tags a row from which a group is searched, which looks at fewer

// A search under way. The rows that no search has reached stand first in their bucket; those that
// were reached stand behind them. Each row that was reached asks once for the rows near it that
// were not, which are reached then: all that are connected by pairs of this table are reached from
// the same start, by a tree of links. A row is compared with none that was reached before it, so
// that rows which are all near each other cost no more than rows that are not.
template <class Isa, unsigned W>
struct LinkFlow {
  using Row = typename RowOf<W>::type;
  const LinkTable& table;
  LinkPlace& at;
  PairSink* sink;
  Pace pace;
  Row* all;
  unsigned upper = 0;  // the bits of the upper part of a tag, where a large bucket is split

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
    exchange(place, --table.live[bucket]);
    table.stack[at.waiting++] = table.live[bucket];
  }

  // Lets two rows change places.
  void exchange(uint64_t place, uint64_t other) {
    const Row row = all[place];
    all[place] = all[other];
    all[other] = row;
    const uint16_t tag = table.tags[place];
    table.tags[place] = table.tags[other];
    table.tags[other] = tag;
  }

  // Compares the row with those of a bucket that were not reached, from the last to the first: what
  // moves to the place of a row that is reached has been compared. False when it did not end.
  bool ask(uint64_t bucket, unsigned limit) {
    if (!at.begun) {
      at.upto = table.live[bucket];
      at.begun = true;
    }
    const uint64_t start = table.starts[bucket];
    if (at.upto == start) return !pace.stopped(kBucketWork);
    return compare(start, limit, [&](uint64_t place) { reach(bucket, place); });
  }

  // Compares the row that asks with those from the start to at.upto, and lets `reached` move each
  // that is near; false when it did not end.
  template <class Reached>
  bool compare(uint64_t start, unsigned limit, const Reached& reached) {
    const Row row = all[at.row];
    const unsigned tag = table.tags[at.row];
    uint16_t near[kTagsAtOnce];
    for (uint64_t n; at.upto > start; at.upto -= n) {
      n = at.upto - start < kTagsAtOnce ? at.upto - start : kTagsAtOnce;
      if (sink->room - sink->count < n || pace.stopped(n + kBucketWork)) return false;
      const uint64_t first = at.upto - n;
      unsigned count = Isa::near_tags(reinterpret_cast<const uint8_t*>(table.tags + first),
                                      static_cast<unsigned>(n), tag, table.tag_mask, limit, near);
      while (count) {
        const uint64_t place = first + near[--count];
        const Row difference = row ^ all[place];
        if (ones(difference) > table.radius) continue;
        if (!linked_before(tag, table.tags[place])) add(row, difference);
        reached(place);
      }
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

  // Searches from all rows; false when it did not end.
  bool search() {
    const TableRule& own = table.rules[table.table];
    const unsigned most = own.flips < table.bucket_bits ? own.flips : table.bucket_bits;
    const uint32_t masks = uint32_t{1} << table.bucket_bits;
    while (at.asking || next()) {
      const uint64_t bucket = leading_bits(leading_word(all[at.row]), table.bucket_bits);
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

  // Links the rows of a group by its pairs, those that connect what no other has connected, for
  // which there is room; false when they are so many that a search is faster.
  bool link_pairs(uint64_t start, unsigned n, unsigned limit) {
    uint16_t left[kTagsAtOnce], right[kTagsAtOnce],
        set[kTagsAtOnce];  // of each row, one before it of the same set, or itself
    for (unsigned i = 0; i < n; ++i) set[i] = static_cast<uint16_t>(i);
    const uint8_t* const tags = reinterpret_cast<const uint8_t*>(table.tags + start);
    const size_t before = sink->count;
    for (unsigned row = 0, seen = 0; row < n;) {
      const unsigned count = Isa::template near_pairs<Isa>(tags, n, &row, table.tag_mask, limit,
                                                           left, right, kTagsAtOnce);
      for (unsigned i = 0; i < count; ++i) {
        const Row one = all[start + left[i]], difference = one ^ all[start + right[i]];
        if (ones(difference) > table.radius) continue;
        const uint16_t a = least_of_set(set, left[i]), b = least_of_set(set, right[i]);
        if (a == b) continue;
        set[a < b ? b : a] = a < b ? a : b;
        if (!linked_before(table.tags[start + left[i]], table.tags[start + right[i]]))
          add(one, difference);
      }
      seen += count;
      if (seen > kManyPairs * n && row < n) {
        sink->count = before;  // the search links all rows of the group
        return false;
      }
    }
    return true;
  }

  // Links the rows of a large group, [start, end): those before at.live have not been reached, and
  // those from at.row on have asked.
  bool link_many(uint64_t start, uint64_t end, unsigned limit) {
    if (!at.searching) {
      at.live = at.row = end;
      at.searching = true;
      at.asking = false;
    }
    for (;; at.asking = false) {
      if (!at.asking) {
        if (at.row == at.live) {  // all that were reached have asked: a new start
          if (at.live == start) break;
          --at.live;
        }
        --at.row;
        at.upto = at.live;
        at.asking = true;
      }
      if (!compare(start, limit, [&](uint64_t place) { exchange(place, --at.live); })) return false;
    }
    at.searching = false;
    return true;
  }

  // Links the rows of a group; false when it did not end.
  bool link(uint64_t start, uint64_t n, unsigned limit) {
    if (n > kTagsAtOnce || at.searching) return link_many(start, start + n, limit);
    if (sink->room - sink->count < n || pace.stopped(n * n / 2 + kBucketWork)) return false;
    return n < 2 || link_pairs(start, static_cast<unsigned>(n), limit) ||
           link_many(start, start + n, limit);
  }

  // Links the rows of a large bucket, whose tags may differ in one bit: their upper parts are
  // equal, or the parts behind them. The rows are put in the order of the one part and then of the
  // other, and each group of rows that have the same part is linked.
  bool link_split(uint64_t start, uint64_t n) {
    const unsigned bits = tag_group_bits(n);
    upper = table.tag_mask & ((1u << bits) - 1) << (kTagBits - bits);
    for (; at.part < 2; ++at.part, at.group = 0, at.grouped = false) {
      if (!at.grouped) group_bucket(start, n, bits);
      at.grouped = true;
      for (; at.group < (1u << bits); ++at.group) {
        const uint64_t first = table.room.starts[at.group],
                       size = table.room.starts[at.group + 1] - first;
        if (!link(start + first, size, 1)) return false;
      }
    }
    at.part = 0;
    return true;
  }

  // Whether rows with these tags met by the upper part of them already, which connects them.
  bool linked_before(unsigned tag, unsigned other) const {
    return at.part && !((tag ^ other) & upper);
  }

  // Sorts the rows and tags of a bucket by a part of the tags.
  void group_bucket(uint64_t start, uint64_t n, unsigned bits) {
    uint16_t* const tags = table.tags + start;
    const PartOfTag part(table.tag_mask, bits, at.part);
    group_starts(reinterpret_cast<const uint8_t*>(tags), n, part, table.room.starts);
    uint64_t next[1u << kMaxTagGroupBits];
    memcpy(next, table.room.starts, (size_t{1} << bits) * sizeof *next);
    Row* const moved = rows<Row>(table.room.rows);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t to = next[part.of(tags[i])]++;
      moved[to] = all[start + i];
      table.room.tags[to] = tags[i];
    }
    memcpy(all + start, moved, n * sizeof *moved);
    memcpy(tags, table.room.tags, n * sizeof *tags);
  }

  // Bucket by bucket, where no bit of the bucket is flipped.
  bool link_each() {
    const unsigned limit = limit_of(table.rules[table.table], 0);
    for (; at.bucket < at.end; ++at.bucket) {
      const uint64_t start = table.starts[at.bucket], n = table.starts[at.bucket + 1] - start;
      if (!(n >= kSplitFrom && limit == 1 ? link_split(start, n) : link(start, n, limit)))
        return false;
    }
    return true;
  }

  bool run() {
    return table.rules[table.table].flips && table.bucket_bits ? search() : link_each();
  }

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

}  // namespace FPSTORE_ISA
}  // namespace fpstore
