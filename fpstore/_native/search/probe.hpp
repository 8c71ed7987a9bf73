// Probes: how the look-ups of queries in tables are ordered on their way into the pipeline.
#pragma once
#include "build/sort.hpp"
#include "search/sweep.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr uint64_t kSweepLeast = 1
                                 << 11;  // look-ups in a table, from which on they may share blocks
#ifdef FPSTORE_SMALL
constexpr uint64_t kWindowLookups = 1 << 8;
constexpr unsigned kMaxWindowBits = 3;
#else
constexpr uint64_t kWindowLookups =
    1 << 15;  // sorted at once: with the room for that they take 512 KiB of the second-level cache
constexpr unsigned kMaxWindowBits =
    12;  // leading bits by which a table is cut into windows at first
#endif
constexpr unsigned kSplitBits = 6;  // by which a window with too many look-ups is cut at once
constexpr uint64_t kWindowStarts =
    (uint64_t{1} << kMaxWindowBits) + 1;  // and the end of the last one
constexpr uint64_t kNearLeast = 1 << 12;  // from which on they are brought nearly into order
constexpr unsigned kNearBits = 18;        // two passes
constexpr unsigned kMaxSortedBits = 64 - kIndexBits;
constexpr uint64_t kQueriesAhead = 64;  // fetched before they are read

// The look-ups of queries in one table on their way into the pipeline.
template <class Blocks>
struct Feeder {
  using W = typename Blocks::W;
  using Row = typename W::Row;
  Pipeline<Blocks>* pipeline;
  const TableProbe* probe;
  const Row* queries;
  uint64_t mask;

  Status add(uint64_t query, const Row& base, uint64_t variant) const {
    const uint64_t target = (leading_word(base) ^ probe->variants[variant]) & mask;
    return probe->filter ? pipeline->ask(probe, target, base, query) : add_at(query, base, target);
  }
  Status add_at(uint64_t query, const Row& base, uint64_t target) const {
    return pipeline->add(probe, target, target | ~mask, base, query);
  }
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
        FPSTORE_TRY(from.add(first + i, bases[i], v));
      }
  }
  return Status::ok;
}

// Memory for queries that are sorted, and for the look-ups of a window and sorting them.
template <class Row>
class LookupBuffers {
 public:
  Row* bases = nullptr;         // the permuted queries, sorted
  uint64_t* words = nullptr;    // while they are sorted: twice as many
  uint32_t* numbers = nullptr;  // then, in the second half of it: of the sorted queries
  uint64_t* window = nullptr;   // the look-ups of a window, twice as many
  uint64_t most = 0;            // of a window
  uint32_t* starts = nullptr;   // of the queries whose leading bits are each value

  explicit LookupBuffers(Scratch* kept) : scratch_(kept ? kept : &own_) {}
  LookupBuffers(const LookupBuffers&) = delete;
  LookupBuffers& operator=(const LookupBuffers&) = delete;
  ~LookupBuffers() { release(&own_); }
  bool reserve(uint64_t queries, uint64_t lookups) {
    most = lookups < kWindowLookups ? lookups : kWindowLookups;
    words = static_cast<uint64_t*>(room_in(scratch_, 0, 2 * (queries + most) * sizeof *words));
    bases = static_cast<Row*>(
        room_in(scratch_, 1, queries * sizeof *bases + kWindowStarts * sizeof *starts));
    if (!words || !bases) return false;
    numbers = reinterpret_cast<uint32_t*>(words + queries);
    window = words + 2 * queries;
    starts = reinterpret_cast<uint32_t*>(bases + queries);
    return true;
  }

 private:
  Scratch own_{};
  Scratch* scratch_;
};

constexpr uint64_t kWordsAhead = 32;  // of a filter, fetched before the first of them is tested

// Keeps the targets[i] for which holds(i) is true; ask(i) comes kWordsAhead targets before. Returns
// how many they are. No target is stored between two calls, because loads would wait for its place.
template <class Ask, class Holds>
inline uint64_t keep_held(uint64_t* targets, uint64_t n, Ask ask, Holds holds) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < kWordsAhead && i < n; ++i) ask(i);
  for (uint64_t first = 0; first < n; first += kWordsAhead) {
    const uint64_t left = n - first, count = left < kWordsAhead ? left : kWordsAhead;
    uint64_t held = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (kWordsAhead + i < left) ask(first + kWordsAhead + i);
      held |= uint64_t{holds(first + i)} << i;
    }
    for (; held; held &= held - 1)
      targets[kept++] = targets[first + static_cast<uint64_t>(__builtin_ctzll(held))];
  }
  return kept;
}

// Leaves out the look-ups that find nothing, as the filter of the table tells: targets are as in
// SortedLookups, none less than least or greater than greatest. Returns how many are left.
inline uint64_t drop_absent(const FilterView& f, uint64_t least, uint64_t greatest,
                            uint64_t* targets, uint64_t n) {
  constexpr uint64_t kLookupsOfPage = 16;  // for which it is worth to verify one
  // So many look-ups of a page find most words in the cache.
  if (verify_range(f, least, greatest, n / kLookupsOfPage))
    return keep_held(
        targets, n, [](uint64_t) {},
        [&](uint64_t i) {
          return verified_holds(f, targets[i], find_verified_word(f, targets[i]));
        });
  // Words are fetched one between two tests: in bursts of 64, batches of 4,096 took 8% longer.
  uint64_t words[2 * kWordsAhead];
  const auto word = [&](uint64_t i) -> uint64_t& { return words[i % (2 * kWordsAhead)]; };
  return keep_held(
      targets, n, [&](uint64_t i) { fetch_word(f, word(i) = find_word(f, targets[i])); },
      [&](uint64_t i) { return may_hold(f, targets[i], word(i)); });
}

// Makes the look-ups of queries in a table, in the order of the table. The queries are permuted and
// sorted first. Then the table is taken window by window, each the entries with some leading bits.
// The look-ups of a window that have one variant are of queries that stand together. So only the
// look-ups of one window are sorted, and these fit the second-level cache.
template <class Blocks>
class SortedFeeder {
 public:
  using W = typename Blocks::W;
  using Row = typename W::Row;

  SortedFeeder(const Feeder<Blocks>& feeder, const Emitter<W>& out, uint64_t queries, Order order,
               const LookupBuffers<Row>& room, ProbeState<W>* state)
      : feeder_(feeder),
        p_(*feeder.probe),
        out_(out),
        queries_(queries),
        order_(order),
        room_(room),
        state_(state),
        stop_(out.options.stop) {
    bits_ = order == Order::sorted || p_.prefix_bits < kNearBits ? p_.prefix_bits : kNearBits;
    const uint64_t lookups = queries * p_.variant_count;
    while (window_bits_ < kMaxWindowBits && window_bits_ < bits_ &&
           lookups >> window_bits_ > kWindowLookups / 2)
      ++window_bits_;
  }

  Status run() {
    if (!sort_queries()) return interrupted(state_->fault);
    if (order_ == Order::sorted) return feed_all();
    Status status = feeder_.pipeline->flush();
    feeder_.pipeline->set_nearly_sorted(true);
    if (status == Status::ok) status = feed_all();
    if (status == Status::ok) status = feeder_.pipeline->flush();
    feeder_.pipeline->set_nearly_sorted(false);
    return status;
  }

 private:
  // False when the call is to end.
  bool sort_queries() {
    const Row* const queries = feeder_.queries;
    uint64_t* const words = room_.words;
    const bool made = in_steps(queries_, stop_, [&](uint64_t first, uint64_t end) {
      permute_rows(p_.table->forward, queries + first, room_.bases + first, end - first);
      for (uint64_t i = first; i < end; ++i)
        words[i] = (leading_word(room_.bases[i]) & feeder_.mask) | i;
    });
    if (!made) return false;
    sort_range(words, words + queries_, queries_, 0, bits_, stop_);
    // They are permuted once more, in their order: a copy of the permuted ones would take as much
    // memory again.
    return !should_stop(stop_, 0) && in_steps(queries_, stop_, [&](uint64_t first, uint64_t end) {
      constexpr uint64_t kPermuted = 128;  // at a time
      Row some[kPermuted];
      for (uint64_t i = first; i < end; i += kPermuted) {
        const uint64_t count = end - i < kPermuted ? end - i : kPermuted;
        for (uint64_t j = i; j < i + count; ++j) {
          if (j + kQueriesAhead < queries_)
            fetch_line(queries + (words[j + kQueriesAhead] & kIndexMask));
          room_.numbers[j] = static_cast<uint32_t>(words[j] & kIndexMask);
          some[j - i] = queries[room_.numbers[j]];
        }
        permute_rows(p_.table->forward, some, room_.bases + i, count);
      }
    });
  }

  Status feed_all() {
    // A single variant 0 changes no target: the look-ups are sorted as the queries are.
    if (p_.variant_count == 1 && p_.variants[0] == 0) {
      const Status status = add({0, queries_}, 0, bits_);
      return status == Status::ok ? look_up(bits_) : status;
    }
    const uint64_t windows = uint64_t{1} << window_bits_;
    uint64_t window = 0;
    for (uint64_t q = 0; q < queries_; ++q)
      for (; window <= leading(leading_word(room_.bases[q])); ++window)
        room_.starts[window] = static_cast<uint32_t>(q);
    for (; window <= windows; ++window) room_.starts[window] = static_cast<uint32_t>(queries_);
    Status status = Status::ok;
    for (window = 0; window < windows && status == Status::ok; ++window)
      status = feed(window << 1 << (63 - window_bits_), window_bits_);
    return status;
  }

  // The first bits of a word, as many as windows are cut by at first.
  uint64_t leading(uint64_t word) const { return leading_bits(word, window_bits_); }

  struct Range {
    uint64_t first, end;
  };

  // The queries whose look-up by a variant begins with depth bits of a prefix; depth is at least
  // window_bits_.
  Range queries_of(uint64_t prefix, unsigned depth, uint64_t variant) const {
    const uint64_t mask = top_mask(depth), least = (prefix ^ variant) & mask;
    Range range{room_.starts[leading(least)], room_.starts[leading(least) + 1]};
    if (depth == window_bits_) return range;
    range.first = first_of(range, [&](uint64_t base) { return (base & mask) >= least; });
    range.end = first_of(range, [&](uint64_t base) { return (base & mask) > least; });
    return range;
  }

  // The first query of a range for which a test is true, as it is for all behind it.
  template <class Test>
  uint64_t first_of(Range range, Test test) const {
    while (range.first < range.end) {
      const uint64_t middle = range.first + (range.end - range.first) / 2;
      if (test(leading_word(room_.bases[middle])))
        range.end = middle;
      else
        range.first = middle + 1;
    }
    return range.first;
  }

  // Makes the look-ups in a window: their targets begin with depth bits of a prefix. If there are
  // too many, the window is cut further; if they have all bits in common, they are made in parts.
  Status feed(uint64_t prefix, unsigned depth) {
    uint64_t lookups = 0;
    for (uint64_t v = 0; v < p_.variant_count; ++v) {
      const Range range = queries_of(prefix, depth, p_.variants[v]);
      lookups += range.end - range.first;
    }
    if (lookups == 0) return Status::ok;
    Status status = Status::ok;
    if (lookups <= room_.most || depth == bits_) {
      for (uint64_t v = 0; v < p_.variant_count && status == Status::ok; ++v)
        status = add(queries_of(prefix, depth, p_.variants[v]), p_.variants[v], depth);
      return status == Status::ok ? look_up(depth) : status;
    }
    unsigned more = 1;
    while (more < kSplitBits && depth + more < bits_ && lookups >> more > room_.most / 2) ++more;
    for (uint64_t i = 0; i < uint64_t{1} << more && status == Status::ok; ++i)
      status = feed(prefix | i << (64 - depth - more), depth + more);
    return status;
  }

  // Adds the look-ups of queries by a variant, and makes those that there is no more room for.
  Status add(Range queries, uint64_t variant, unsigned depth) {
    while (queries.first < queries.end) {
      const uint64_t left = queries.end - queries.first, room = room_.most - count_,
                     n = left < room ? left : room;
      for (uint64_t i = queries.first; i < queries.first + n; ++i)
        room_.window[count_++] = ((leading_word(room_.bases[i]) & feeder_.mask) ^ variant) | i;
      queries.first += n;
      if (count_ < room_.most) continue;
      FPSTORE_TRY(look_up(depth));
    }
    return Status::ok;
  }

  // Makes the look-ups that have been added, which have depth bits in common; with all bits_, they
  // may differ, but are in order.
  Status look_up(unsigned depth) {
    if (count_ == 0) return Status::ok;
    if (should_stop(stop_, count_)) return interrupted(state_->fault);
    // A sweep is of many look-ups, so a window is a small part of the table, and its filter is in
    // the cache. Else the filter is read nearly in order.
    if (p_.filter && order_ == Order::sorted) drop(depth, depth == bits_);
    sort_range(room_.window, room_.window + room_.most, count_, depth, bits_,
               nullptr);  // in the cache: it is not stopped half-way
    if (p_.filter && order_ != Order::sorted) drop(bits_, true);
    const SortedLookups<Row> lookups{&p_,          room_.window, count_,
                                     feeder_.mask, room_.bases,  room_.numbers};
    count_ = 0;
    if (order_ == Order::sorted) return Sweep<Blocks>(out_, lookups, state_).run();
    for (uint64_t i = 0; i < lookups.count; ++i) {
      const uint64_t place = lookups.place(i);
      FPSTORE_TRY(feeder_.add_at(room_.numbers[place], room_.bases[place], lookups.target(i)));
    }
    return Status::ok;
  }

  // Asks the filter. The look-ups are in order of their first bits, or have these in common.
  void drop(unsigned bits, bool in_order) {
    const uint64_t mask = top_mask(bits), last = room_.window[in_order ? count_ - 1 : 0];
    count_ = drop_absent(*p_.filter, room_.window[0] & mask, last | ~mask, room_.window, count_);
  }

  const Feeder<Blocks>& feeder_;
  const TableProbe& p_;
  const Emitter<W>& out_;
  const uint64_t queries_;
  const Order order_;
  const LookupBuffers<Row>& room_;
  ProbeState<W>* const state_;
  Stopper* const stop_;
  unsigned bits_;  // by which look-ups are sorted
  unsigned window_bits_ = 0;
  uint64_t count_ = 0;  // look-ups that wait
};

// The best order of the look-ups of a batch of queries in a table. Sorted look-ups have their query
// in the bits behind the prefix.
inline Order order_of(const TableProbe& p, uint64_t lookups, uint64_t queries, Order asked_for) {
  if (p.prefix_bits > kMaxSortedBits || queries > kIndexMask) return Order::asked;
  if (asked_for != Order::best) return asked_for;
  // With fewer look-ups per block the near order is faster: a sweep would open most blocks for one
  // look-up only.
  const double opening = static_cast<double>(lookups) * p.passing;
  if (lookups >= kSweepLeast && opening >= static_cast<double>(p.table->block_count / 5 * 4))
    return Order::sorted;
  return lookups >= kNearLeast ? Order::near : Order::asked;
}

// Table by table: its decode table stays in the first-level cache. The look-ups of a single query,
// one in each table, wait for memory together. Matches come out in table order.
template <class Blocks>
Status probe_blocks(const TableProbes& tables, const Queries& queries, const ProbeOptions& options,
                    Sink* sink, ProbeCounters* counters, Fault* fault) {
  const TableProbe *const first = tables.probes + tables.first, *const end =
                                                                    tables.probes + tables.end;
  uint32_t block_bytes = kMinBlockBytes;
  for (const TableProbe* p = first; p < end; ++p)
    if (p->table->block_bytes > block_bytes) block_bytes = p->table->block_bytes;
  const Workspace work(block_bytes);
  if (!work.fine()) return no_memory(fault);
  using W = typename Blocks::W;
  ProbeState<W> state;
  state.work = &work;
  state.counters = counters;
  state.fault = fault;
  state.at_fault = first;
  const Emitter<W> out{tables.probes, options, sink};
  uint64_t lookups = 0;
  for (const TableProbe* p = first; p < end; ++p)
    lookups += p->table->block_count ? p->variant_count * queries.count : 0;
  Pipeline<Blocks> pipeline(out, &state, lookups);
  LookupBuffers<typename W::Row> room(options.scratch);
  Status status = Status::ok;
  for (const TableProbe* p = first; p < end && status == Status::ok; ++p) {
    if (p->table->block_count == 0 || p->variant_count == 0 || queries.count == 0) continue;
    const uint64_t in_table = queries.count * p->variant_count;
    Order order = order_of(*p, in_table, queries.count, options.order);
    // Without memory to sort them they are taken as they come.
    if (order != Order::asked && !room.reserve(queries.count, in_table)) order = Order::asked;
    const Feeder<Blocks> feeder{&pipeline, p, rows<typename W::Row>(queries.words),
                                top_mask(p->prefix_bits)};
    status = order == Order::asked
                 ? feed_plainly(feeder, queries.count)
                 : SortedFeeder<Blocks>(feeder, out, queries.count, order, room, &state).run();
  }
  if (status == Status::ok) status = pipeline.flush();
  fault->table = static_cast<unsigned>(state.at_fault - tables.probes);
  return status;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
