// Probes: how the look-ups of queries in tables go through their stages, many at a time.
#pragma once
#include "build/sort.hpp"
#include "search/index_search.hpp"
#include "search/probe_blocks.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kFetchKeys = 512;

constexpr uint64_t kSweepLeast = 1 << 11;
constexpr uint64_t kSweepItems = 1 << 20;  // look-ups sorted at a time
constexpr unsigned kSweepIndexBits = 24;  // the low bits of a sort key tell which look-up it is
static_assert(kSweepItems <= uint64_t{1} << kSweepIndexBits, "every look-up has its number");

template <class W>
inline Status bad_directory(const Item<W>& item, ProbeState<W>* state) {
  *state->fault = Fault{Status::bad_directory, UINT64_MAX, item.probe->table->block_count, item.high};
  state->at_fault = item.probe;
  return state->fault->status;
}

// The blocks of a look-up whose part of the key index is known: from the first that may hold the target to the first whose key no
// longer has the prefix. All of them are read, and their checksums cover the keys by which they were chosen.
template <class Blocks, class W = typename Blocks::W>
inline Status find_range(Item<W>* item, ProbeState<W>* state) {
  const TableView& t = *item->probe->table;
  const uint64_t mask = top_mask(item->probe->prefix_bits);
  const uint64_t b = find_block<Blocks>(t, item->target, item->low, item->high);
  if (__builtin_expect(!encloses(t, b, item->target), 0)) return bad_directory(*item, state);
  item->first = b;
  item->end = b + 1;
  if (__builtin_expect(b == t.block_count, 0)) {
    // Nothing is that large, if the last key is right: its block's checksum says so.
    ++state->counters->blocks;
    state->at_fault = item->probe;
    item->end = b;
    return Blocks::check(t, b - 1, state->fault);
  }
  if (__builtin_expect((t.keys[b] & mask) != item->target || b + 1 == t.block_count, 1)) return Status::ok;
  // Above 64 bits, several keys may begin with the last word that has the prefix: the block behind them ends the range.
  uint64_t low, high;
  const uint64_t last = item->target | ~mask;
  if (W::kWide && last == ~uint64_t{0}) {
    item->end = t.block_count;
    return Status::ok;
  }
  const uint64_t behind = last + W::kWide;
  if (__builtin_expect(!directory_range(t, behind, &low, &high), 0)) return bad_directory(*item, state);
  if (low < b) low = b;
  const uint64_t e = find_block<Blocks>(t, behind, low, high < low ? low : high);
  if (__builtin_expect(!encloses(t, e, behind), 0)) return bad_directory(*item, state);
  item->end = e == t.block_count ? e : e + 1;
  return Status::ok;
}

// Finds the blocks of look-ups, in stages directory and key; each fetches ahead what the next one reads.
template <class Blocks, class W = typename Blocks::W>
inline Status find_ranges(Item<W>* items, unsigned n, ProbeState<W>* state) {
  for (unsigned i = 0; i < n; ++i) {
    const TableView& t = *items[i].probe->table;
    const uint64_t* slot = t.directory + (t.directory_bits ? items[i].target >> (64 - t.directory_bits) : 0);
    __builtin_prefetch(slot);
    if (state->fetch) ask_ahead(slot, 2 * sizeof *slot, state);
  }
  for (unsigned i = 0; i < n; ++i) {
    const TableView& t = *items[i].probe->table;
    if (__builtin_expect(!directory_range(t, items[i].target, &items[i].low, &items[i].high), 0))
      return bad_directory(items[i], state);
    __builtin_prefetch(t.keys + items[i].low);
    __builtin_prefetch(t.keys + items[i].low + 8);
    // Of a longer range, which skewed sets have, a search touches little.
    if (state->fetch && items[i].high - items[i].low <= kFetchKeys)
      ask_ahead(t.keys + items[i].low, (items[i].high - items[i].low + 1) * sizeof *t.keys, state);
  }
  for (unsigned i = 0; i < n; ++i) {
    const Status status = find_range<Blocks>(items + i, state);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// Blocks on their way to being read, kUnits together; they are fetched ahead meanwhile.
template <class W>
struct BlockFeeder {
  const Emitter& out;
  ProbeState<W>* state;
  unsigned units = 0;

  template <class Blocks>
  Status look(uint64_t b, const Item<W>& item) {
    prefetch_block(*item.probe->table, b);
    if (state->fetch) ask_ahead(block_at(*item.probe->table, b), item.probe->table->block_bytes, state);
    state->units[units++] = Unit<W>{b, &item};
    return units < kUnits ? Status::ok : flush<Blocks>();
  }
  template <class Blocks>
  Status flush() {
    const unsigned n = units;
    units = 0;
    return run_units<Blocks>(out, n, state);
  }
};

// Look-up by look-up.
template <class Blocks, class W = typename Blocks::W>
inline Status read_plainly(const Item<W>* items, unsigned n, BlockFeeder<W>* to) {
  for (const Item<W>* item = items; item < items + n; ++item)
    for (uint64_t b = item->first; b < item->end; ++b) {
      const Status status = to->template look<Blocks>(b, *item);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
  return Status::ok;
}

// Block by block, so that the look-ups in one block stand together; both ends of their ranges ascend.
template <class Blocks, class W = typename Blocks::W>
inline Status read_sorted(const Item<W>* items, unsigned n, BlockFeeder<W>* to) {
  const Item<W> *low = items, *high = items;
  for (uint64_t b = 0; low < items + n; ++b) {
    if (low == high && b < low->first) b = low->first;
    while (high < items + n && high->first <= b) ++high;
    while (low < high && low->end <= b) ++low;
    for (const Item<W>* item = low; item < high; ++item) {
      if (item->end <= b) continue;
      const Status status = to->template look<Blocks>(b, *item);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
  }
  return Status::ok;
}

// Takes look-ups through all stages. Sorted ones are of one table, by ascending target.
template <class Blocks, class W = typename Blocks::W>
inline Status run_items(const Emitter& out, Item<W>* items, unsigned n, bool sorted, ProbeState<W>* state) {
  Status status = find_ranges<Blocks>(items, n, state);
  if (__builtin_expect(status != Status::ok, 0)) return status;
  // Targets that differ behind the sorted bits only, or a damaged index, can be out of order.
  for (unsigned i = 1; i < n && sorted; ++i) sorted = items[i - 1].first <= items[i].first && items[i - 1].end <= items[i].end;
  BlockFeeder<W> feeder{out, state};
  status = sorted ? read_sorted<Blocks>(items, n, &feeder) : read_plainly<Blocks>(items, n, &feeder);
  return status == Status::ok ? feeder.template flush<Blocks>() : status;
}

// Reads the pages that a look-up begins with.
template <class Blocks, class W = typename Blocks::W>
inline void touch(const Item<W>& item) {
  const TableView& t = *item.probe->table;
  uint64_t low, high;
  if (!directory_range(t, item.target, &low, &high)) return;
  const uint64_t b = find_block<Blocks>(t, item.target, low, high);
  if (b < t.block_count) (void)*static_cast<const volatile uint8_t*>(block_at(t, b));
}

// Takes a group of look-ups through the stages, asking for their pages ahead as the prober's page watch decides.
template <class Blocks, class W = typename Blocks::W>
inline Status run_group(const Emitter& out, unsigned n, bool sorted, ProbeState<W>* state) {
  if (!n) return Status::ok;
  PageWatch* const pages = out.options.pages;
  const auto plan = pages ? pages->plan(n) : PageWatch::Plan::trust;
  state->fetch = out.options.fetch || plan == PageWatch::Plan::fetch;
  if (plan != PageWatch::Plan::check) return run_items<Blocks>(out, state->items, n, sorted, state);
  const uint64_t before = major_faults();
  touch<Blocks>(state->items[0]);
  const bool waited = major_faults() != before;
  state->fetch |= waited;
  const Status status = run_items<Blocks>(out, state->items, n, sorted, state);
  pages->note(waited || major_faults() != before);
  return status;
}

// The look-ups of queries in one table, one after the other, on their way into groups.
template <class Blocks>
struct Feeder {
  using W = typename Blocks::W;
  using Row = typename W::Row;
  const Emitter& out;
  ProbeState<W>* state;
  const TableProbe* probe;
  const Row* queries;
  uint64_t mask;
  bool sorted = false;
  unsigned n = 0;  // in the group under way, which may go on into the next table

  void start(const TableProbe* next) {
    probe = next;
    mask = top_mask(next->prefix_bits);
  }
  Status add(uint64_t query, const Row& base, uint64_t variant) {
    const uint64_t target = (lead(base) ^ probe->variants[variant]) & mask;
    state->items[n++] = Item<W>{probe, target, base, 0, 0, 0, 0, queries[query], static_cast<uint32_t>(query)};
    return n < kGroup ? Status::ok : flush();
  }
  Status flush() {
    const Status status = run_group<Blocks>(out, n, sorted, state);
    n = 0;
    return status;
  }
};

// In the order of the queries.
template <class Blocks>
inline Status feed_plainly(Feeder<Blocks>* to, size_t query_count) {
  const TableProbe& p = *to->probe;
  for (size_t q = 0; q < query_count; ++q) {
    const auto base = apply(p.table->forward, to->queries[q]);
    for (uint64_t v = 0; v < p.variant_count; ++v) {
      const Status status = to->add(q, base, v);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
  }
  return Status::ok;
}

// In the order of the table, most at a time; room is for twice as many words.
template <class Blocks>
inline Status feed_sorted(Feeder<Blocks>* to, size_t query_count, uint64_t most, uint64_t* room) {
  const TableProbe& p = *to->probe;
  constexpr uint64_t index_mask = (uint64_t{1} << kSweepIndexBits) - 1;
  const unsigned sorted_bits = p.prefix_bits < 64 - kSweepIndexBits ? p.prefix_bits : 64 - kSweepIndexBits;
  const uint64_t sorted = top_mask(sorted_bits);
  for (uint64_t query = 0, variant = 0; query < query_count;) {
    // Number i is variant (variant0 + i) % variant_count of query query0 + (variant0 + i) / variant_count.
    const uint64_t query0 = query, variant0 = variant;
    uint64_t n = 0;
    for (; query < query_count && n < most; ++query, variant = 0) {
      const uint64_t base = lead(apply(p.table->forward, to->queries[query]));
      for (; variant < p.variant_count && n < most; ++variant, ++n) room[n] = ((base ^ p.variants[variant]) & sorted) | n;
      if (variant < p.variant_count) break;
    }
    sort_range(room, room + most, n, 0, sorted_bits, to->out.options.stop);
    if (should_stop(to->out.options.stop, n)) return interrupted(to->state->fault);
    Status status = to->flush();
    to->sorted = true;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t number = (room[i] & index_mask) + variant0;
      const uint64_t q = query0 + (p.variant_count == 1 ? number : number / p.variant_count);
      const uint64_t v = number - (q - query0) * p.variant_count;
      if (__builtin_expect(status != Status::ok, 0)) return status;
      status = to->add(q, apply(p.table->forward, to->queries[q]), v);
    }
    if (status == Status::ok) status = to->flush();
    to->sorted = false;
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// Memory for sorting look-ups, twice as many words as there are.
struct SweepRoom {
  uint64_t* words = nullptr;
  uint64_t items = 0;

  ~SweepRoom() { give_back(words, bytes(items)); }
  bool reserve(uint64_t wanted) {
    if (wanted <= items) return true;
    give_back(words, bytes(items));
    words = static_cast<uint64_t*>(take_memory(bytes(wanted)));
    items = words ? wanted : 0;
    return words;
  }
  static size_t bytes(uint64_t n) { return 2 * n * sizeof(uint64_t); }
};

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
  const Emitter out{probes, options, sink};
  Feeder<Blocks> feeder{out, &state, probes, rows<typename W::Row>(queries.words), 0};
  SweepRoom room;
  Status status = Status::ok;
  for (const TableProbe* p = probes; p < end && status == Status::ok; ++p) {
    if (p->table->block_count == 0 || p->variant_count == 0 || queries.count == 0) continue;
    feeder.start(p);
    const bool fits = queries.count < kSweepItems / p->variant_count;
    const uint64_t items = fits ? queries.count * p->variant_count : kSweepItems;
    bool sweep = options.sweep_from == ProbeOptions::kDense ? items >= kSweepLeast && items / 3 >= p->table->block_count / 8
                                                            : items >= options.sweep_from;
    // Without memory to sort them they are taken as they come.
    if (sweep) sweep = room.reserve(items);
    status = sweep ? feed_sorted(&feeder, queries.count, items, room.words) : feed_plainly(&feeder, queries.count);
  }
  if (status == Status::ok) status = feeder.flush();
  fault->table = static_cast<unsigned>(state.at_fault - probes);
  return status;
}

}  // namespace
}  // namespace fpstore
