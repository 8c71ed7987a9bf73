// Joins: each row of a bucket is compared with those of the buckets near it, in its own set or in
// another, first by their tags.
#pragma once
#include "columns/masks.hpp"
#include "pairs/request.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr uint64_t kGroupRows = 32;  // of a group of a large bucket, about
constexpr uint64_t kBucketWork = 8;  // of looking at a bucket, in comparisons of a tag

// Asks now and then whether to stop.
struct Pace {
  Stopper* stop;
  uint64_t done = 0;  // comparisons of tags since the last look

  bool stopped(uint64_t work) {
    done += work;
    if (FPSTORE_LIKELY(done < (1 << 14))) return false;
    const uint64_t steps = done / 4;  // a tag is a fraction of an entry decoded
    done = 0;
    return should_stop(stop, steps);
  }
};

// The bits of the part of a tag that groups the rows of a large bucket.
inline unsigned tag_group_bits(uint64_t rows) {
  unsigned bits = 1;
  while (bits < kMaxTagGroupBits && rows >> (bits + 1) >= kGroupRows) ++bits;
  return bits;
}

// A part of a tag: its first bits (number 0), or as many bits that follow (number 1).
struct PartOfTag {
  unsigned live, shift, part;

  PartOfTag(unsigned tag_mask, unsigned bits, unsigned number)
      : live(tag_mask), shift(kTagBits - bits * (number + 1)), part((1u << bits) - 1) {}

  unsigned of(unsigned tag) const { return (tag & live) >> shift & part; }
};

// Counts tags by a part, and writes the prefix sums: where each group begins, and the end of the
// last.
inline void group_starts(const uint8_t* tags, uint64_t n, const PartOfTag& part, uint64_t* starts) {
  memset(starts, 0, (part.part + 2) * sizeof *starts);
  for (uint64_t i = 0; i < n; ++i) ++starts[part.of(load16(tags + 2 * i)) + 1];
  for (unsigned d = 0; d <= part.part; ++d) starts[d + 1] += starts[d];
}

// Whether rows with this difference meet in one of the first tables.
template <class Row>
bool met_before(const TableRule* rules, unsigned tables, const Row& difference) {
  constexpr unsigned kRowWords = sizeof(Row) / sizeof(uint64_t);
  for (unsigned i = 0; i < tables; ++i) {
    unsigned bucket = 0, tag = 0;
    for (unsigned w = 0; w < kRowWords; ++w) {
      bucket += ones(word_of(difference, w) & rules[i].bucket_mask[w]);
      tag += ones(word_of(difference, w) & rules[i].tag_mask[w]);
    }
    if (bucket <= rules[i].flips && bucket + tag <= rules[i].both) return true;
  }
  return false;
}

// A join under way.
template <class Isa, unsigned W>
struct JoinFlow {
  using Row = typename RowOf<W>::type;
  const Join& join;
  JoinPlace& at;
  PairSink* sink;
  Pace pace;
  const Row* all;

  // Reports two rows whose tags are near if they are near themselves, and no earlier table reports
  // them.
  void report(const Row& row, const Row& other) {
    const Row difference = row ^ other;
    const unsigned distance = ones(difference);
    if (FPSTORE_LIKELY(distance > join.radius)) return;
    const Row unpermuted = apply(join.inverse, difference);
    if (met_before(join.rules, join.table, unpermuted)) return;
    const Row a = apply(join.inverse, row), b = a ^ unpermuted;
    const bool swap = !join.between && b < a;
    const size_t n = sink->count++;
    rows<Row>(sink->a)[n] = swap ? b : a;
    rows<Row>(sink->b)[n] = swap ? a : b;
    sink->distances[n] = static_cast<uint16_t>(distance);
  }

  // Compares the rows of a group with each other, and hands those whose tags are near to `found`;
  // false when it did not end.
  template <class Found>
  bool compare(const uint8_t* tags, uint64_t n, unsigned limit, const Found& found) {
    uint16_t near[kTagsAtOnce], other[kTagsAtOnce];
    if (n <= kTagsAtOnce) {
      for (unsigned row = static_cast<unsigned>(at.row); row < n; at.row = row) {
        if (sink->room - sink->count < kTagsAtOnce || pace.stopped(n * (n - row) / 2)) return false;
        const unsigned count = Isa::template near_pairs<Isa>(
            tags, static_cast<unsigned>(n), &row, join.tag_mask, limit, near, other, kTagsAtOnce);
        for (unsigned i = 0; i < count; ++i) found(near[i], other[i]);
      }
      return true;
    }
    for (; at.row < n; ++at.row, at.other = 0) {
      if (at.other <= at.row) at.other = at.row + 1;
      for (uint64_t more; at.other < n; at.other += more) {
        more = n - at.other < kTagsAtOnce ? n - at.other : kTagsAtOnce;
        if (sink->room - sink->count < more || pace.stopped(more + kBucketWork)) return false;
        const unsigned count =
            Isa::near_tags(tags + 2 * at.other, static_cast<unsigned>(more),
                           load16(tags + 2 * at.row), join.tag_mask, limit, near);
        for (unsigned i = 0; i < count; ++i) found(at.row, at.other + near[i]);
      }
    }
    return true;
  }

  // Compares the rows of a bucket with each other.
  bool meet_within(uint64_t start, uint64_t n, unsigned limit) {
    if (n >= kSplitFrom && limit == 1) return meet_split(start, n);
    return compare(join.side.tags + 2 * start, n, limit,
                   [&](uint64_t a, uint64_t b) { report(all[start + a], all[start + b]); });
  }

  // The same for a large bucket and tags that differ in one bit at most: their upper parts are
  // equal, or the parts behind them. The rows are grouped by the one part, then by the other; the
  // second time, pairs with equal upper parts are skipped.
  bool meet_split(uint64_t start, uint64_t n) {
    const unsigned bits = tag_group_bits(n);
    for (; at.part < 2; ++at.part, at.group = 0, at.grouped = false) {
      if (!at.grouped) group_bucket(start, n, bits);
      at.grouped = true;
      if (!meet_groups(bits)) return false;
    }
    at.part = 0;
    return true;
  }

  // Sorts the places and tags of a bucket by a part of the tags, and writes where each group
  // begins.
  void group_bucket(uint64_t start, uint64_t n, unsigned bits) {
    const uint8_t* const from = join.side.tags + 2 * start;
    const PartOfTag part(join.tag_mask, bits, at.part);
    group_starts(from, n, part, join.room.starts);
    uint64_t next[1u << kMaxTagGroupBits];
    memcpy(next, join.room.starts, (size_t{1} << bits) * sizeof *next);
    for (uint64_t i = 0; i < n; ++i) {
      const unsigned tag = load16(from + 2 * i);
      const uint64_t to = next[part.of(tag)]++;
      join.room.places[to] = start + i;
      join.room.tags[to] = static_cast<uint16_t>(tag);
    }
  }

  bool meet_groups(unsigned bits) {
    const unsigned part = (1u << bits) - 1, upper = join.tag_mask & part << (kTagBits - bits);
    for (; at.group <= part; ++at.group, at.row = at.other = 0) {
      const uint64_t first = join.room.starts[at.group],
                     size = join.room.starts[at.group + 1] - first;
      const uint16_t* const tags = join.room.tags + first;
      const uint64_t* const places = join.room.places + first;
      const bool ended =
          compare(reinterpret_cast<const uint8_t*>(tags), size, 1, [&](uint64_t a, uint64_t b) {
            if (at.part && !((tags[a] ^ tags[b]) & upper)) return;
            report(all[places[a]], all[places[b]]);
          });
      if (!ended) return false;
    }
    return true;
  }

  // Compares the rows of one bucket with the rows of another. Their tags may differ in limit bits.
  // False when it did not end.
  bool meet(uint64_t other, unsigned limit) {
    const JoinSide& side = join.side;
    const JoinSide& facing = join.between ? join.opposite : side;
    const uint64_t start = side.starts[at.bucket], end = side.starts[at.bucket + 1];
    if (at.mask == 0 && !join.between) return meet_within(start, end - start, limit);
    const uint64_t first = facing.starts[other], last = facing.starts[other + 1];
    const Row* const those = rows<Row>(facing.rows);
    if (first == last) return !pace.stopped(kBucketWork);
    uint16_t near[kTagsAtOnce];
    for (; at.row < end - start; ++at.row, at.other = 0) {
      const unsigned tag = load16(side.tags + 2 * (start + at.row));
      for (uint64_t n; at.other < last - first; at.other += n) {
        n = last - first - at.other < kTagsAtOnce ? last - first - at.other : kTagsAtOnce;
        if (sink->room - sink->count < n || pace.stopped(n + kBucketWork)) return false;
        const uint8_t* const tags = facing.tags + 2 * (first + at.other);
        const unsigned count =
            Isa::near_tags(tags, static_cast<unsigned>(n), tag, join.tag_mask, limit, near);
        for (unsigned i = 0; i < count; ++i)
          report(all[start + at.row], those[first + at.other + near[i]]);
      }
    }
    return true;
  }

  bool run() {
    const TableRule& own = join.rules[join.table];
    const unsigned most = own.flips < join.bucket_bits ? own.flips : join.bucket_bits;
    const uint32_t masks = uint32_t{1} << join.bucket_bits;
    for (; at.bucket < at.end; ++at.bucket, at.mask = at.flipped = 0) {
      if (join.side.starts[at.bucket] == join.side.starts[at.bucket + 1]) continue;
      for (; at.flipped <= most; ++at.flipped, at.mask = first_mask(at.flipped)) {
        const unsigned limit = own.both - at.flipped < kTagBits ? own.both - at.flipped : kTagBits;
        for (; at.mask < masks; at.mask = next_mask(at.mask, masks)) {
          const uint64_t other = at.bucket ^ at.mask;
          if (other < at.bucket && !join.between) continue;
          if (!meet(other, limit)) return false;
          at.row = at.other = 0;
        }
      }
    }
    return true;
  }
};

template <class Isa, unsigned W>
bool join_rows(const Join& join, JoinPlace* place, PairSink* sink, Stopper* stop) {
  using Row = typename RowOf<W>::type;
  return JoinFlow<Isa, W>{join, *place, sink, Pace{stop}, rows<Row>(join.side.rows)}.run();
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
