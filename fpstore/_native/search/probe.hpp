// Probes: how the look-ups of queries in tables are ordered on their way into the pipeline.
#pragma once
#include "build/sort.hpp"
#include "search/sweep.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kSweepLeast = 1 << 11;  // look-ups in a table, from which on they may share blocks
#ifdef FPSTORE_SMALL
constexpr uint64_t kSortedAtOnce = 1 << 8;  // look-ups
constexpr uint64_t kQueriesBetween = 1 << 3;  // two looks at whether the call is to end
#else
constexpr uint64_t kSortedAtOnce = 1 << 22;
constexpr uint64_t kQueriesBetween = 1 << 16;
#endif
constexpr unsigned kWindowBits = 7;  // leading bits of a target, by which windows of the table are cut; more would need more stack
constexpr uint64_t kNearLeast = 1 << 12;  // from which on they are brought nearly into order
constexpr unsigned kNearBits = 18;  // two passes
constexpr unsigned kMostSortedBits = 64 - kIndexBits;

// The look-ups of queries in one table on their way into the pipeline.
template <class Blocks>
struct Feeder {
  using W = typename Blocks::W;
  using Row = typename W::Row;
  Pipeline<Blocks>* to;
  const TableProbe* probe;
  const Row* queries;
  uint64_t mask;

  Status add(uint64_t query, const Row& base, uint64_t variant) const {
    return add_at(query, base, (lead(base) ^ probe->variants[variant]) & mask);
  }
  Status add_at(uint64_t query, const Row& base, uint64_t target) const { return to->add(probe, target, target | ~mask, base, query); }
};

// In the order of the queries.
template <class Blocks>
inline Status feed_plainly(const Feeder<Blocks>& from, size_t query_count) {
  constexpr size_t kPermuted = 64;  // at a time
  const TableProbe& p = *from.probe;
  typename Blocks::W::Row bases[kPermuted];
  for (size_t first = 0; first < query_count; first += kPermuted) {
    const size_t n = query_count - first < kPermuted ? query_count - first : kPermuted;
    permute_rows(p.table->forward, from.queries + first, bases, n);
    for (size_t i = 0; i < n; ++i)
      for (uint64_t v = 0; v < p.variant_count; ++v) {
        const Status status = from.add(first + i, bases[i], v);
        if (__builtin_expect(status != Status::ok, 0)) return status;
      }
  }
  return Status::ok;
}

// Memory for sorting look-ups: twice as many words as there are, and the permuted queries.
template <class Row>
class LookupRoom {
 public:
  uint64_t* words = nullptr;
  Row* bases = nullptr;

  explicit LookupRoom(Scratch* kept) : scratch_(kept ? kept : &own_) {}
  LookupRoom(const LookupRoom&) = delete;
  LookupRoom& operator=(const LookupRoom&) = delete;
  ~LookupRoom() { release(&own_); }
  bool reserve(uint64_t lookups, uint64_t queries) {
    words = static_cast<uint64_t*>(room_in(scratch_, 0, 2 * lookups * sizeof *words));
    bases = static_cast<Row*>(room_in(scratch_, 1, queries * sizeof *bases));
    return words && bases;
  }

 private:
  Scratch own_{};
  Scratch* scratch_;
};

// Look-ups on their way into the pipeline, nearly in the order of the table.
template <class Blocks, class Row = typename Blocks::W::Row>
inline Status feed_near(const Feeder<Blocks>& from, const SortedLookups<Row>& lookups) {
  Status status = from.to->flush();
  from.to->set_near(true);
  for (uint64_t i = 0; i < lookups.count && status == Status::ok; ++i) {
    if (i + kBasesAhead < lookups.count) __builtin_prefetch(lookups.bases + lookups.query(i + kBasesAhead));
    const uint64_t q = lookups.query(i);
    status = from.add_at(q, lookups.bases[q], lookups.target(i));
  }
  if (status == Status::ok) status = from.to->flush();
  from.to->set_near(false);
  return status;
}

// The variants of a table's look-ups, which ascend, in groups of the same leading kWindowBits.
struct VariantGroups {
  static constexpr unsigned kEnd = 1 << kWindowBits;
  unsigned count = 0;
  uint8_t leading[kEnd];
  uint64_t starts[kEnd + 1];

  explicit VariantGroups(const TableProbe& p) {
    for (uint64_t v = 0; v < p.variant_count; ++v) {
      const unsigned bits = static_cast<unsigned>(p.variants[v] >> (64 - kWindowBits));
      if (count && leading[count - 1] == bits) continue;
      leading[count] = static_cast<uint8_t>(bits);
      starts[count++] = v;
    }
    starts[count] = p.variant_count;
  }
};

// Leaves out the look-ups that find nothing, as the filter of the table tells: words are as in SortedLookups. Returns how many are left.
inline uint64_t drop_absent(const TableProbe& p, uint64_t* words, uint64_t n) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t word = words[i];
    words[kept] = word;
    kept += may_hold(p, word);
  }
  return kept;
}

// The look-ups of queries in a table whose targets lie in a window of it: their leading kWindowBits are from first on, before end.
template <class Blocks, class Row = typename Blocks::W::Row>
inline Status feed_window(const Feeder<Blocks>& from, const Emitter<typename Blocks::W>& out, uint64_t query_count, const VariantGroups& groups,
                          unsigned first, unsigned end, uint64_t most, Order order, const LookupRoom<Row>& room,
                          ProbeState<typename Blocks::W>* state) {
  const TableProbe& p = *from.probe;
  Stopper* const stop = out.options.stop;
  const unsigned near_bits = p.prefix_bits < kNearBits ? p.prefix_bits : kNearBits;
  // Where those of a window are more than there is room for, it is gone through several times.
  uint64_t query = 0, variant = 0;
  unsigned group = 0;
  while (query < query_count) {
    uint64_t n = 0;
    const auto take = [&] {
      for (; query < query_count; ++query, group = 0, variant = 0) {
        if (query % kQueriesBetween == 0 && should_stop(stop, kQueriesBetween)) return;
        const uint64_t base = lead(room.bases[query]) & from.mask;
        const unsigned leading = static_cast<unsigned>(base >> (64 - kWindowBits));
        for (; group < groups.count; variant = groups.starts[++group]) {
          if ((leading ^ groups.leading[group]) - first >= end - first) continue;
          for (; variant < groups.starts[group + 1]; ++variant) {
            if (n == most) return;
            room.words[n++] = (base ^ p.variants[variant]) | query;
          }
        }
      }
    };
    take();
    const auto sort = [&](unsigned bits) {
      if (bits) sort_range(room.words, room.words + most, n, 0, bits, stop);
    };
    // The filter is read nearly in order.
    if (p.filter || order == Order::near) sort(near_bits);
    if (should_stop(stop, n + query_count)) return interrupted(state->fault);
    if (p.filter) n = drop_absent(p, room.words, n);
    if (order == Order::sorted) sort(p.prefix_bits);
    if (should_stop(stop, 0)) return interrupted(state->fault);
    const SortedLookups<Row> lookups{&p, room.words, n, from.mask, room.bases};
    const Status status = order == Order::sorted ? Sweep<Blocks>(out, lookups, state).run() : feed_near(from, lookups);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// In the order of the table. So many that there is no room to sort them all are taken window by window, so that those of a block stay
// together.
template <class Blocks, class Row = typename Blocks::W::Row>
inline Status feed_sorted(const Feeder<Blocks>& from, const Emitter<typename Blocks::W>& out, uint64_t query_count, uint64_t lookups, Order order,
                          const LookupRoom<Row>& room, ProbeState<typename Blocks::W>* state) {
  constexpr unsigned kEnd = VariantGroups::kEnd;
  const VariantGroups groups(*from.probe);
  for (uint64_t q = 0; q < query_count; q += kQueriesBetween) {
    const uint64_t left = query_count - q;
    permute_rows(from.probe->table->forward, from.queries + q, room.bases + q, left < kQueriesBetween ? left : kQueriesBetween);
    if (should_stop(out.options.stop, kQueriesBetween)) return interrupted(state->fault);
  }
  if (lookups <= kSortedAtOnce) return feed_window(from, out, query_count, groups, 0, kEnd, lookups, order, room, state);
  uint64_t counts[kEnd] = {};
  for (uint64_t query = 0; query < query_count; ++query) {
    const unsigned leading = static_cast<unsigned>((lead(room.bases[query]) & from.mask) >> (64 - kWindowBits));
    for (unsigned g = 0; g < groups.count; ++g) counts[leading ^ groups.leading[g]] += groups.starts[g + 1] - groups.starts[g];
  }
  for (unsigned first = 0, end = 0; first < kEnd; first = end) {
    uint64_t inside = counts[end++];
    while (end < kEnd && inside + counts[end] <= kSortedAtOnce) inside += counts[end++];
    const Status status = feed_window(from, out, query_count, groups, first, end, kSortedAtOnce, order, room, state);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// In which order so many look-ups of so many queries in a table are best taken. Sorted ones tell their query in the bits behind the prefix.
inline Order order_of(const TableProbe& p, uint64_t lookups, uint64_t queries, Order asked_for) {
  if (p.prefix_bits > kMostSortedBits || queries > kIndexMask) return Order::asked;
  if (asked_for != Order::best) return asked_for;
  // With fewer look-ups per block the near order is faster: a sweep would open most blocks for one look-up only.
  const double opening = static_cast<double>(lookups) * p.filled;
  if (lookups >= kSweepLeast && opening >= static_cast<double>(p.table->block_count / 5 * 4)) return Order::sorted;
  return lookups >= kNearLeast ? Order::near : Order::asked;
}

// Table by table: its decode table stays in the first-level cache. The look-ups of a single query, one in each table, wait for
// memory together. Matches come out in table order.
template <class Blocks>
Status probe_blocks(const TableProbes& tables, const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters* counters,
             Fault* fault) {
  const TableProbe *const first = tables.probes + tables.first, *const end = tables.probes + tables.end;
  uint32_t block_bytes = kMinBlockBytes;
  for (const TableProbe* p = first; p < end; ++p)
    if (p->table->block_bytes > block_bytes) block_bytes = p->table->block_bytes;
  const Workspace work(block_bytes);
  if (!work.fine()) return no_memory(UINT64_MAX, fault);
  using W = typename Blocks::W;
  ProbeState<W> state;
  state.work = &work;
  state.counters = counters;
  state.fault = fault;
  state.at_fault = first;
  const Emitter<W> out{tables.probes, rows<typename W::Row>(queries.words), options, sink};
  uint64_t lookups = 0;
  for (const TableProbe* p = first; p < end; ++p) lookups += p->table->block_count ? p->variant_count * queries.count : 0;
  Pipeline<Blocks> pipeline(out, &state, lookups);
  LookupRoom<typename W::Row> room(options.scratch);
  Status status = Status::ok;
  for (const TableProbe* p = first; p < end && status == Status::ok; ++p) {
    if (p->table->block_count == 0 || p->variant_count == 0 || queries.count == 0) continue;
    const uint64_t in_table = queries.count * p->variant_count;
    Order order = order_of(*p, in_table, queries.count, options.order);
    // Without memory to sort them they are taken as they come.
    if (order != Order::asked && !room.reserve(in_table < kSortedAtOnce ? in_table : kSortedAtOnce, queries.count)) order = Order::asked;
    const Feeder<Blocks> feeder{&pipeline, p, out.queries, top_mask(p->prefix_bits)};
    status = order == Order::asked ? feed_plainly(feeder, queries.count)
                                   : feed_sorted(feeder, out, queries.count, in_table, order, room, &state);
  }
  if (status == Status::ok) status = pipeline.flush();
  fault->table = static_cast<unsigned>(state.at_fault - tables.probes);
  return status;
}

}  // namespace
}  // namespace fpstore
