// Probes inside blocks: look-ups whose blocks are known read them, a few side by side, and report
// what is near.
#pragma once
#include "search/index_search.hpp"
#include "search/matches.hpp"
#include "search/codecs.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// A block that holds, or may hold, entries for an item.
template <class W>
struct Unit {
  uint64_t block;
  const Item<W>* item;
};

constexpr unsigned kUnits = 64;  // taken through at a time

template <class W>
struct ProbeState {
  const Workspace* work;
  Unit<W> units[kUnits];
  ProbeCounters* counters;
  Fault* fault;
  const TableProbe* at_fault;
  bool fetch;  // ask for the pages of this group ahead
  const Item<W>* ahead =
      nullptr;  // look-ups whose blocks are fetched when the next blocks have been opened
  unsigned ahead_count = 0;
};

template <class W>
inline void ask_ahead(const void* p, size_t n, ProbeState<W>* state) {
  ++state->counters->fetches;
  fetch_pages(p, n);
}

// A range without blocks begins behind the last block, where there is nothing to ask for.
template <class W>
inline void fetch_block(const Item<W>& item, uint64_t b, ProbeState<W>* state) {
  const TableView& t = *item.probe->table;
  prefetch_block(t, b);
  if (FPSTORE_UNLIKELY(state->fetch) && b < t.block_count)
    ask_ahead(block_at(t, b), t.block_bytes, state);
}

// The first blocks of a look-up.
template <class W>
inline void fetch_first(const Item<W>& item, ProbeState<W>* state) {
  fetch_block(item, item.first, state);
  if (item.end > item.first + 1) fetch_block(item, item.first + 1, state);
}

template <class W>
inline void fetch_rest(ProbeState<W>* state) {
  for (; state->ahead_count; --state->ahead_count) fetch_first(*state->ahead++, state);
}

// Emits the matches among the entries from the cursor on that have the item's prefix. False when
// memory runs out.
template <class Blocks, class W = typename Blocks::W>
inline bool filter_from(const Emitter<W>& out, const Item<W>& item,
                        const Seek<typename Blocks::OpenBlock>& from, Cursor c,
                        ProbeState<W>* state) {
  const typename Blocks::OpenBlock& unit = *from.unit;
  const uint8_t* const block = block_at(*unit.table, unit.block);
  while (item.has_prefix(c.value)) {
    ++state->counters->candidates;
    const unsigned distance = ones(c.value ^ leading_word(item.base));
    if (distance <= out.options.radius &&
        !emit(out, item, c.value, distance, rest_at<W>(block, unit.head, c.index),
              {unit.block, c.index}))
      return false;
    if (!Blocks::next(unit, *state->work, from.k, &c)) break;
  }
  return true;
}

// Whether all entries of a block have the same prefix.
inline bool is_whole(const TableProbe& probe, uint64_t b) {
  const TableView& t = *probe.table;
  return b && !((t.keys[b - 1] ^ t.keys[b]) & top_mask(probe.prefix_bits));
}

// Whether comparing all entries of a block beats looking for a prefix, as many entries are expected
// to have it.
template <class Blocks>
inline bool expects_many(const TableProbe& probe) {
  return probe.table->fingerprint_count >> (probe.prefix_bits & 63) >= Blocks::kExpandFrom &&
         probe.prefix_bits < 64;
}

// Whether comparing all entries of a block beats looking for the prefixes of its look-ups.
template <class Blocks>
inline bool worth_expanding(const TableProbe& probe, uint64_t b, uint64_t uses) {
  return uses >= Blocks::kExpandShared || expects_many<Blocks>(probe) || is_whole(probe, b);
}

// Up to kWays blocks and the look-ups that end in each.
template <class OpenBlock, class W>
struct Reading {
  OpenBlock reads[kWays];
  const Unit<W>* starts[kWays + 1];
  unsigned count;
};

// The next of units, as far as they go into one reading.
template <class Blocks, class OpenBlock, class W>
inline const Unit<W>* gather(const Unit<W>* units, const Unit<W>* stop, Reading<OpenBlock, W>* r) {
  r->count = 0;
  for (; units < stop; ++units) {
    const TableView* t = units->item->probe->table;
    if (r->count && r->reads[r->count - 1].table == t &&
        r->reads[r->count - 1].block == units->block)
      continue;
    if (r->count == Blocks::kTogether) break;
    r->starts[r->count] = units;
    r->reads[r->count++] = OpenBlock{t, units->block, {}};
  }
  r->starts[r->count] = units;
  return units;
}

// The entries of an opened block, number k of those opened together.
template <class Blocks, class W = typename Blocks::W>
inline Status expand_block(const typename Blocks::OpenBlock& unit, unsigned k,
                           LeadingWords* entries, ProbeState<W>* state) {
  uint64_t* const values = state->work->values;
  const Status status = Blocks::expand(unit, *state->work, k, values, state->fault);
  *entries = LeadingWords{values, rest_at<W>(block_at(*unit.table, unit.block), unit.head, 0),
                          unit.head.count, unit.block};
  return status;
}

// The look-ups in the blocks of a reading that are worth expanding; the others go into seeks.
template <class Blocks, class W = typename Blocks::W, class OpenBlock = typename Blocks::OpenBlock>
inline Status filter_expanded(const Emitter<W>& out, const Reading<OpenBlock, W>& r,
                              Seek<OpenBlock>* seeks, const Unit<W>** sought, unsigned* count,
                              ProbeState<W>* state) {
  for (unsigned j = 0; j < r.count; ++j) {
    const OpenBlock& read = r.reads[j];
    const TableProbe& probe = *r.starts[j]->item->probe;
    const unsigned uses = static_cast<unsigned>(r.starts[j + 1] - r.starts[j]);
    ++state->counters->blocks;
    if (!worth_expanding<Blocks>(probe, read.block, uses)) {
      for (const Unit<W>* u = r.starts[j]; u < r.starts[j + 1]; ++u) {
        seeks[*count] = Seek<OpenBlock>{&read, j, u->item->target};
        sought[(*count)++] = u;
      }
      continue;
    }
    state->at_fault = &probe;
    LeadingWords entries;
    FPSTORE_TRY(expand_block<Blocks>(read, j, &entries, state));
    for (const Unit<W>* u = r.starts[j]; u < r.starts[j + 1]; ++u) {
      state->counters->candidates += read.head.count;
      if (!Blocks::filter_values(out, *u->item, entries,
                                 Blocks::lower_bound(entries, u->item->target)))
        return no_memory(state->fault);
    }
  }
  return Status::ok;
}

// The look-ups that find their place in a block.
template <class Blocks, class W = typename Blocks::W>
inline Status filter_sought(const Emitter<W>& out, const Seek<typename Blocks::OpenBlock>* seeks,
                            const Unit<W>* const* sought, unsigned count, ProbeState<W>* state) {
  for (unsigned i = 0; i < count; i += kWays) {
    const unsigned batch = count - i < kWays ? count - i : kWays;
    Cursor cursors[kWays];
    bool fine[kWays];
    Blocks::find_group(*state->work, seeks + i, batch, cursors, fine);
    for (unsigned j = 0; j < batch; ++j) {
      const Item<W>& item = *sought[i + j]->item;
      const uint64_t b = sought[i + j]->block;
      state->at_fault = item.probe;
      if (FPSTORE_UNLIKELY(!fine[j]))
        return bad_key(*item.probe->table, b, item.target, state->fault);
      if (!filter_from<Blocks>(out, item, seeks[i + j], cursors[j], state))
        return no_memory(state->fault);
    }
  }
  return Status::ok;
}

template <class Blocks, class W = typename Blocks::W>
inline Status run_units(const Emitter<W>& out, unsigned n, ProbeState<W>* state) {
  Reading<typename Blocks::OpenBlock, W> r;
  Seek<typename Blocks::OpenBlock> seeks[kUnits];
  const Unit<W>* sought[kUnits];
  const Unit<W>* const stop = state->units + n;
  uint64_t counted = state->counters->candidates;
  for (const Unit<W>* units = state->units; units < stop;) {
    units = gather<Blocks>(units, stop, &r);
    if (FPSTORE_UNLIKELY(should_stop(out.options.stop,
                                     r.count * kBlockWork + state->counters->candidates - counted)))
      return interrupted(state->fault);
    counted = state->counters->candidates;
    unsigned bad = 0, count = 0;
    Status status = Blocks::open(r.reads, r.count, *state->work, &bad, state->fault);
    if (FPSTORE_UNLIKELY(status != Status::ok)) {
      state->at_fault = r.starts[bad]->item->probe;
      return status;
    }
    fetch_rest(state);
    FPSTORE_TRY(filter_expanded<Blocks>(out, r, seeks, sought, &count, state));
    FPSTORE_TRY(filter_sought<Blocks>(out, seeks, sought, count, state));
  }
  return Status::ok;
}

// A look-up in an opened block, number k of those opened together, whose entries are all compared.
template <class Blocks, class W = typename Blocks::W>
inline Status look_at_all(const Emitter<W>& out, const Item<W>& item,
                          const typename Blocks::OpenBlock& unit, unsigned k,
                          ProbeState<W>* state) {
  LeadingWords entries;
  FPSTORE_TRY(expand_block<Blocks>(unit, k, &entries, state));
  state->counters->candidates += entries.n;
  return Blocks::filter_values(out, item, entries, Blocks::lower_bound(entries, item.target))
             ? Status::ok
             : no_memory(state->fault);
}

// The same, which finds its place.
template <class Blocks, class W = typename Blocks::W>
inline Status look_into(const Emitter<W>& out, const Item<W>& item,
                        const typename Blocks::OpenBlock& unit, unsigned k, ProbeState<W>* state) {
  if constexpr (Blocks::kReached) {
    state->counters->candidates += kFew;
    const Shortcut few = Blocks::filter_few(out, item, unit);
    if (FPSTORE_LIKELY(few == Shortcut::done)) return Status::ok;
    if (few == Shortcut::no_memory) return no_memory(state->fault);
    if (is_whole(*item.probe, unit.block)) return look_at_all<Blocks>(out, item, unit, k, state);
  }
  Cursor c;
  if (FPSTORE_UNLIKELY(!Blocks::find(unit, *state->work, k, item.target, &c))) {
    state->at_fault = item.probe;
    return bad_key(*unit.table, unit.block, item.target, state->fault);
  }
  const bool fine = filter_from<Blocks>(
      out, item, Seek<typename Blocks::OpenBlock>{&unit, k, item.target}, c, state);
  return fine ? Status::ok : no_memory(state->fault);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
