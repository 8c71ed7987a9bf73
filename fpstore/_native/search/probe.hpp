// Probes: how the look-ups of queries in tables are ordered on their way into the pipeline.
#pragma once
#include "build/sort.hpp"
#include "search/pipeline.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kSweepLeast = 1 << 11;
constexpr uint64_t kSweepItems = 1 << 20;  // look-ups sorted at a time
constexpr uint64_t kNearLeast = 1 << 12;
constexpr unsigned kNearBits = 18;  // two passes
constexpr unsigned kSweepIndexBits = 24;  // the low bits of a sort key tell which look-up it is
static_assert(kSweepItems <= uint64_t{1} << kSweepIndexBits, "every look-up has its number");

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
class SweepRoom {
 public:
  uint64_t* words = nullptr;
  Row* bases = nullptr;

  SweepRoom() = default;
  SweepRoom(const SweepRoom&) = delete;
  SweepRoom& operator=(const SweepRoom&) = delete;
  ~SweepRoom() { release(); }
  bool reserve(uint64_t lookups, uint64_t queries) {
    if (lookups <= lookups_ && queries <= queries_) return true;
    release();
    words = static_cast<uint64_t*>(take_memory(2 * lookups * sizeof *words));
    bases = static_cast<Row*>(take_memory(queries * sizeof *bases));
    lookups_ = lookups;
    queries_ = queries;
    if (words && bases) return true;
    release();
    return false;
  }

 private:
  void release() {
    if (words) give_back(words, 2 * lookups_ * sizeof *words);
    if (bases) give_back(bases, queries_ * sizeof *bases);
    words = nullptr;
    bases = nullptr;
    lookups_ = queries_ = 0;
  }

  uint64_t lookups_ = 0, queries_ = 0;
};

// Divides numbers below 2^32 by a smaller one: the product with a reciprocal that is rounded up, whose error is then too small to show.
class Divisor {
 public:
  explicit Divisor(uint64_t by) : reciprocal_(by > 1 ? ~uint64_t{0} / by + 1 : 0) {}
  uint64_t divide(uint64_t x) const {
    return reciprocal_ ? static_cast<uint64_t>((static_cast<unsigned __int128>(x) * reciprocal_) >> 64) : x;
  }

 private:
  uint64_t reciprocal_;
};

// In the order of the table, most at a time.
template <class Blocks, class Row = typename Blocks::W::Row>
inline Status feed_sorted(const Feeder<Blocks>& from, size_t query_count, uint64_t most, Order order, const SweepRoom<Row>& room,
                          Stopper* stop, Fault* fault) {
  const TableProbe& p = *from.probe;
  constexpr uint64_t index_mask = (uint64_t{1} << kSweepIndexBits) - 1;
  const unsigned most_bits = order == Order::dense ? 64 - kSweepIndexBits : kNearBits;
  const unsigned sorted_bits = p.prefix_bits < most_bits ? p.prefix_bits : most_bits;
  const uint64_t sorted = top_mask(sorted_bits);
  const Divisor variants(p.variant_count);
  uint64_t* const words = room.words;
  permute_rows(p.table->forward, from.queries, room.bases, query_count);
  for (uint64_t query = 0, variant = 0; query < query_count;) {
    // Number i is variant (variant0 + i) % variant_count of query query0 + (variant0 + i) / variant_count.
    const uint64_t query0 = query, variant0 = variant;
    uint64_t n = 0;
    for (; query < query_count && n < most; ++query, variant = 0) {
      const uint64_t base = lead(room.bases[query]);
      for (; variant < p.variant_count && n < most; ++variant, ++n) words[n] = ((base ^ p.variants[variant]) & sorted) | n;
      if (variant < p.variant_count) break;
    }
    if (sorted_bits) sort_range(words, words + most, n, 0, sorted_bits, stop);
    if (should_stop(stop, n)) return interrupted(fault);
    Status status = from.to->flush();
    from.to->set_order(order);
    for (uint64_t i = 0; i < n && status == Status::ok; ++i) {
      const uint64_t number = (words[i] & index_mask) + variant0, q = variants.divide(number);
      const Row& base = room.bases[query0 + q];
      // The sorted bits are those of the target, and mostly all of them.
      status = __builtin_expect(sorted_bits == p.prefix_bits, 1) ? from.add_at(query0 + q, base, words[i] & sorted)
                                                                 : from.add(query0 + q, base, number - q * p.variant_count);
    }
    if (status == Status::ok) status = from.to->flush();
    from.to->set_order(Order::asked);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// In which order so many look-ups in a table are best taken.
inline Order order_of(const TableProbe& p, uint64_t items, uint64_t sweep_from) {
  if (sweep_from != ProbeOptions::kDense) return items >= sweep_from ? Order::dense : Order::asked;
  if (items >= kSweepLeast && items / 3 >= p.table->block_count / 8) return Order::dense;
  return items >= kNearLeast ? Order::near : Order::asked;
}

// Table by table: its decode table stays in the first-level cache. The look-ups of a single query, one in each table, wait for
// memory together. Matches come out in table order.
template <class Blocks>
Status probe_blocks(const TableProbes& tables, const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters* counters,
             Fault* fault) {
  const TableProbe *const probes = tables.probes, *const end = probes + tables.count;
  uint32_t block_bytes = kMinBlockBytes;
  for (const TableProbe* p = probes; p < end; ++p)
    if (p->table->block_bytes > block_bytes) block_bytes = p->table->block_bytes;
  const Workspace work(block_bytes);
  if (!work.fine()) return no_memory(UINT64_MAX, fault);
  using W = typename Blocks::W;
  ProbeState<W> state;
  state.work = &work;
  state.counters = counters;
  state.fault = fault;
  state.at_fault = probes;
  const Emitter<W> out{probes, rows<typename W::Row>(queries.words), options, sink};
  uint64_t lookups = 0;
  for (const TableProbe* p = probes; p < end; ++p) lookups += p->table->block_count ? p->variant_count * queries.count : 0;
  Pipeline<Blocks> pipeline(out, &state, lookups);
  SweepRoom<typename W::Row> room;
  Status status = Status::ok;
  for (const TableProbe* p = probes; p < end && status == Status::ok; ++p) {
    if (p->table->block_count == 0 || p->variant_count == 0 || queries.count == 0) continue;
    const bool fits = queries.count < kSweepItems / p->variant_count;
    const uint64_t items = fits ? queries.count * p->variant_count : kSweepItems;
    Order order = order_of(*p, items, options.sweep_from);
    // Without memory to sort them they are taken as they come.
    if (order != Order::asked && !room.reserve(items, queries.count)) order = Order::asked;
    const Feeder<Blocks> feeder{&pipeline, p, out.queries, top_mask(p->prefix_bits)};
    status = order == Order::asked ? feed_plainly(feeder, queries.count)
                                   : feed_sorted(feeder, queries.count, items, order, room, options.stop, fault);
  }
  if (status == Status::ok) status = pipeline.flush();
  fault->table = static_cast<unsigned>(state.at_fault - probes);
  return status;
}

}  // namespace
}  // namespace fpstore
