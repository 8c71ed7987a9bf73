// Probes inside blocks: look-ups whose blocks are known read them, a few side by side, and report what is near.
#pragma once
#include "search/index_search.hpp"
#include "search/matches.hpp"
#include "search/seek.hpp"

namespace fpstore {
namespace {

// A block that holds, or may hold, entries for an item.
struct Unit {
  uint64_t block;
  const Item* item;
};

constexpr unsigned kUnits = 128;  // taken through at a time

struct ProbeState {
  const Workspace* work;
  Item items[kGroup];
  Unit units[kUnits];
  ProbeCounters* counters;
  Fault* fault;
  const TableProbe* at_fault;
  bool fetch;  // ask for the pages of this group ahead
};

inline void ask_ahead(const void* p, size_t n, ProbeState* state) {
  ++state->counters->fetches;
  fetch_pages(p, n);
}

// Emits the matches among the entries from the cursor on that have the item's prefix, reading as few tails as possible. False when
// memory runs out.
inline bool filter_codes(const Emitter& out, const Item& item, uint64_t mask, const Seek& from, Cursor c, ProbeState* state) {
  uint64_t e = c.value;
  for (uint32_t i = c.index; (e & mask) == item.target; ++i) {
    ++state->counters->candidates;
    const unsigned distance = static_cast<unsigned>(__builtin_popcountll(e ^ item.base));
    if (distance <= out.options.radius && !emit(out, item, e, distance)) return false;
    if (i + 1 >= from.head->count) break;
    const unsigned h = from.h[i];
    e = keep_before(e, h) | tail_value(from.block, c.at, h);
    c.at += 63 - h;
  }
  return true;
}

// Whether comparing all entries of a block, where many share the prefix, beats looking for the prefix in its codes.
template <class Isa>
inline bool worth_expanding(const TableProbe& probe, uint64_t b, unsigned uses) {
  const TableView& t = *probe.table;
  const bool whole = b && !((t.keys[b - 1] ^ t.keys[b]) & top_mask(probe.prefix_bits));
  const uint64_t expected = t.fingerprint_count >> (probe.prefix_bits < 63 ? probe.prefix_bits : 63);
  return whole || uses >= Isa::kExpandShared || expected >= Isa::kExpandFrom;
}

// Up to kWays blocks and the look-ups that end in each.
struct Reading {
  Unread reads[kWays];
  const Unit* starts[kWays + 1];
  unsigned count;
};

// The next of units, as far as they go into one reading.
inline const Unit* gather(const Unit* units, const Unit* stop, Reading* r) {
  r->count = 0;
  for (; units < stop; ++units) {
    const TableView* t = units->item->probe->table;
    if (r->count && r->reads[r->count - 1].table == t && r->reads[r->count - 1].block == units->block) continue;
    if (r->count == kWays) break;
    r->starts[r->count] = units;
    r->reads[r->count++] = Unread{t, units->block, {}};
  }
  r->starts[r->count] = units;
  return units;
}

// The look-ups in the blocks of a reading that are worth expanding; the others go into seeks.
template <class Isa>
inline Status filter_expanded(const Emitter& out, const Reading& r, Seek* seeks, const Unit** sought, unsigned* count,
                              ProbeState* state) {
  for (unsigned j = 0; j < r.count; ++j) {
    const Unread& read = r.reads[j];
    const TableProbe& probe = *r.starts[j]->item->probe;
    const unsigned uses = static_cast<unsigned>(r.starts[j + 1] - r.starts[j]);
    ++state->counters->blocks;
    if (!worth_expanding<Isa>(probe, read.block, uses)) {
      for (const Unit* u = r.starts[j]; u < r.starts[j + 1]; ++u) {
        seeks[*count] = Seek{block_at(*read.table, read.block), &read.head, state->work->codes[j].h, u->item->target};
        sought[(*count)++] = u;
      }
      continue;
    }
    state->at_fault = &probe;
    const Status status = expand_block<Isa>(read, state->work->codes[j], state->work->values, state->fault);
    if (__builtin_expect(status != Status::ok, 0)) return status;
    for (const Unit* u = r.starts[j]; u < r.starts[j + 1]; ++u) {
      state->counters->candidates += read.head.count;
      if (!Isa::filter_values(out, *u->item, top_mask(probe.prefix_bits), state->work->values, read.head.count))
        return no_memory(read.block, state->fault);
    }
  }
  return Status::ok;
}

// The look-ups that find their place in a block by its codes.
template <class Isa>
inline Status filter_sought(const Emitter& out, const Seek* seeks, const Unit* const* sought, unsigned count, ProbeState* state) {
  for (unsigned i = 0; i < count; i += kWays) {
    const unsigned take = count - i < kWays ? count - i : kWays;
    Cursor cursors[kWays];
    bool fine[kWays];
    seek_group<Isa>(seeks + i, take, cursors, fine);
    for (unsigned j = 0; j < take; ++j) {
      const Item& item = *sought[i + j]->item;
      const uint64_t b = sought[i + j]->block;
      state->at_fault = item.probe;
      if (__builtin_expect(!fine[j], 0)) {
        *state->fault = Fault{Status::bad_key, b, item.probe->table->keys[b], item.target};
        return state->fault->status;
      }
      if (!filter_codes(out, item, top_mask(item.probe->prefix_bits), seeks[i + j], cursors[j], state))
        return no_memory(b, state->fault);
    }
  }
  return Status::ok;
}

template <class Isa>
inline Status run_units(const Emitter& out, unsigned n, ProbeState* state) {
  Reading r;
  Seek seeks[kUnits];
  const Unit* sought[kUnits];
  const Unit* const stop = state->units + n;
  uint64_t counted = state->counters->candidates;
  for (const Unit* units = state->units; units < stop;) {
    units = gather(units, stop, &r);
    if (__builtin_expect(should_stop(out.options.stop, r.count * kBlockWork + state->counters->candidates - counted), 0))
      return interrupted(state->fault);
    counted = state->counters->candidates;
    unsigned bad = 0, count = 0;
    Status status = load_codes<Isa>(r.reads, r.count, state->work->codes, &bad, state->fault);
    if (__builtin_expect(status != Status::ok, 0)) {
      state->at_fault = r.starts[bad]->item->probe;
      return status;
    }
    status = filter_expanded<Isa>(out, r, seeks, sought, &count, state);
    if (__builtin_expect(status != Status::ok, 0)) return status;
    status = filter_sought<Isa>(out, seeks, sought, count, state);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

}  // namespace
}  // namespace fpstore
