// Joins: each row of a bucket is compared with those of the buckets near it, first by their tags.
#pragma once
#include "columns/thresholds.hpp"
#include "pairs/request.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kSplitFrom = 512;  // rows of a bucket that are worth bringing together by parts of their tags
constexpr uint64_t kGroupRows = 32;   // which are then compared with each other
constexpr unsigned kMostPartBits = kTagBits / 2;

// A join under way.
template <class Isa, unsigned W>
struct JoinFlow {
  using Row = typename RowOf<W>::type;
  const Join& join;
  JoinPlace& at;
  PairSink* sink;
  Stopper* stop;
  const Row* left;
  const Row* right;
  uint64_t done = 0;  // work since the last look at the stop

  bool stopped(uint64_t work) {
    done += work;
    if (__builtin_expect(done < (1 << 14), 1)) return false;
    const uint64_t steps = done / 4;  // a tag is a fraction of an entry decoded
    done = 0;
    return should_stop(stop, steps);
  }

  // Whether an earlier table reports the pair.
  bool met_before(const Row& difference) const {
    for (unsigned i = 0; i < join.table; ++i) {
      const Meeting& m = join.meetings[i];
      unsigned bucket = 0, tag = 0;
      for (unsigned w = 0; w < W; ++w) {
        bucket += ones(word_of(difference, w) & m.bucket_mask[w]);
        tag += ones(word_of(difference, w) & m.tag_mask[w]);
      }
      if (bucket <= m.flips && bucket + tag <= m.both) return true;
    }
    return false;
  }

  // Reports two rows whose tags are near if they are near themselves, and no earlier table reports them.
  void report(const Row& row, const Row& other) {
    const Row difference = row ^ other;
    const unsigned distance = ones(difference);
    if (__builtin_expect(distance > join.radius, 1)) return;
    const Row unpermuted = apply(join.inverse, difference);
    if (met_before(unpermuted)) return;
    const Row a = apply(join.inverse, row), b = a ^ unpermuted;
    const bool swap = join.within && b < a;
    const size_t n = sink->count++;
    rows<Row>(sink->a)[n] = swap ? b : a;
    rows<Row>(sink->b)[n] = swap ? a : b;
    sink->distances[n] = static_cast<uint16_t>(distance);
  }

  // Compares the rows of a group with each other, and hands those whose tags are near to `found`; false when it did not end.
  template <class Found>
  bool compare(const uint8_t* tags, uint64_t n, unsigned limit, const Found& found) {
    uint16_t near[kTagsAtOnce], other[kTagsAtOnce];
    if (n <= kTagsAtOnce) {
      for (unsigned row = static_cast<unsigned>(at.row); row < n; at.row = row) {
        if (sink->room - sink->count < kTagsAtOnce || stopped(n)) return false;
        const unsigned count = Isa::near_pairs(tags, static_cast<unsigned>(n), &row, join.tag_mask, limit, near, other, kTagsAtOnce);
        for (unsigned i = 0; i < count; ++i) found(near[i], other[i]);
      }
      return true;
    }
    for (; at.row < n; ++at.row, at.other = 0) {
      if (at.other <= at.row) at.other = at.row + 1;
      for (uint64_t more; at.other < n; at.other += more) {
        more = n - at.other < kTagsAtOnce ? n - at.other : kTagsAtOnce;
        if (sink->room - sink->count < more || stopped(more + 16)) return false;
        const unsigned count = Isa::near_tags(tags + 2 * at.other, static_cast<unsigned>(more), load16(tags + 2 * at.row),
                                              join.tag_mask, limit, near);
        for (unsigned i = 0; i < count; ++i) found(at.row, at.other + near[i]);
      }
    }
    return true;
  }

  // Compares the rows of a bucket with each other.
  bool meet_within(uint64_t start, uint64_t n, unsigned limit) {
    if (n >= kSplitFrom && limit == 1) return meet_split(start, n);
    return compare(join.left.tags + 2 * start, n, limit,
                   [&](uint64_t a, uint64_t b) { report(left[start + a], left[start + b]); });
  }

  // The same for a large bucket and tags that differ in one bit at most. Of two parts of the tag one is equal then: the rows are
  // brought together by the upper bits of the tag, and then by the bits that follow; what has equal upper bits has met then.
  bool meet_split(uint64_t start, uint64_t n) {
    const size_t bytes = n * (sizeof(uint32_t) + sizeof(uint16_t)) + kSectionRoom;
    auto* const places = static_cast<uint32_t*>(n <= UINT32_MAX ? take_memory(bytes) : nullptr);
    if (!places) {  // it is slower without
      return compare(join.left.tags + 2 * start, n, 1, [&](uint64_t a, uint64_t b) { report(left[start + a], left[start + b]); });
    }
    unsigned bits = 1;
    while (bits < kMostPartBits && n >> (bits + 1) >= kGroupRows) ++bits;
    bool ended = true;
    for (; at.part < 2; ++at.part, at.group = 0) {
      ended = meet_parts(start, n, bits, places, reinterpret_cast<uint16_t*>(places + n));
      if (!ended) break;
    }
    give_back(places, bytes);
    if (ended) at.part = 0;
    return ended;
  }

  bool meet_parts(uint64_t start, uint64_t n, unsigned bits, uint32_t* places, uint16_t* tags) {
    uint32_t starts[(1u << kMostPartBits) + 1] = {};
    const uint8_t* const from = join.left.tags + 2 * start;
    const unsigned shift = kTagBits - bits * (at.part + 1), part = (1u << bits) - 1, upper = part << (kTagBits - bits);
    const auto key = [&](uint64_t i) { return (load16(from + 2 * i) & join.tag_mask) >> shift & part; };
    for (uint64_t i = 0; i < n; ++i) ++starts[key(i) + 1];
    for (unsigned d = 0; d < part + 1; ++d) starts[d + 1] += starts[d];
    for (uint64_t i = 0; i < n; ++i) {
      const uint32_t to = starts[key(i)]++;
      places[to] = static_cast<uint32_t>(i);
      tags[to] = load16(from + 2 * i);
    }
    // Each start has become the end of its group.
    for (; at.group <= part; ++at.group, at.row = at.other = 0) {
      const uint32_t first = at.group ? starts[at.group - 1] : 0, size = starts[at.group] - first;
      const bool ended = compare(reinterpret_cast<const uint8_t*>(tags + first), size, 1, [&](uint64_t a, uint64_t b) {
        if (at.part && !((tags[first + a] ^ tags[first + b]) & join.tag_mask & upper)) return;  // they have met
        report(left[start + places[first + a]], left[start + places[first + b]]);
      });
      if (!ended) return false;
    }
    return true;
  }

  // Compares the rows of one bucket with those of another, whose tags may differ in so many bits; false when it did not end.
  bool meet(uint64_t other, unsigned limit) {
    const uint64_t start = join.left.starts[at.bucket], end = join.left.starts[at.bucket + 1];
    if (join.within && at.mask == 0) return meet_within(start, end - start, limit);
    const uint64_t first = join.right.starts[other], last = join.right.starts[other + 1];
    uint16_t near[kTagsAtOnce];
    for (; at.row < end - start; ++at.row, at.other = 0) {
      const unsigned tag = load16(join.left.tags + 2 * (start + at.row));
      for (uint64_t n; at.other < last - first; at.other += n) {
        n = last - first - at.other < kTagsAtOnce ? last - first - at.other : kTagsAtOnce;
        if (sink->room - sink->count < n || stopped(n + 16)) return false;
        const uint8_t* const tags = join.right.tags + 2 * (first + at.other);
        const unsigned count = Isa::near_tags(tags, static_cast<unsigned>(n), tag, join.tag_mask, limit, near);
        for (unsigned i = 0; i < count; ++i) report(left[start + at.row], right[first + at.other + near[i]]);
      }
    }
    return true;
  }

  bool run() {
    const Meeting& own = join.meetings[join.table];
    const unsigned most = own.flips < join.bucket_bits ? own.flips : join.bucket_bits;
    const uint32_t masks = uint32_t{1} << join.bucket_bits;
    for (; at.bucket < at.end; ++at.bucket, at.mask = at.flipped = 0) {
      if (join.left.starts[at.bucket] == join.left.starts[at.bucket + 1]) continue;
      for (; at.flipped <= most; ++at.flipped, at.mask = (uint32_t{1} << at.flipped) - 1) {
        const unsigned limit = own.both - at.flipped < kTagBits ? own.both - at.flipped : kTagBits;
        for (; at.mask < masks; at.mask = at.flipped ? next_mask(at.mask) : masks) {
          const uint64_t other = at.bucket ^ at.mask;
          if (join.within && other < at.bucket) continue;
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
  return JoinFlow<Isa, W>{join, *place, sink, stop, rows<Row>(join.left.rows), rows<Row>(join.right.rows)}.run();
}

}  // namespace
}  // namespace fpstore
