// Finding single fingerprints in a table.
#pragma once
#include "search/index_search.hpp"
#include "search/seek.hpp"

namespace fpstore {
namespace {

inline Status bad_directory(const TableView& t, uint64_t high, Fault* fault) {
  *fault = Fault{Status::bad_directory, UINT64_MAX, t.block_count, high};
  return fault->status;
}

// A group of fingerprints on their way through stages like those of a probe.
struct Locating {
  const TableView& t;
  const Scratch* scratch;
  Fault* fault;
  uint64_t targets[kGroup];
  unsigned waiting[kGroup];  // those whose block is to be read
  unsigned count;
};

// Finds the block that each fingerprint would be in; UINT64_MAX where it is larger than all.
template <class Isa>
inline Status choose_blocks(Locating* group, const uint64_t* fingerprints, unsigned n, uint64_t* blocks) {
  const TableView& t = group->t;
  uint64_t low[kGroup], high[kGroup];
  for (unsigned i = 0; i < n; ++i) {
    group->targets[i] = apply(t.forward, fingerprints[i]);
    __builtin_prefetch(t.directory + (t.directory_bits ? group->targets[i] >> (64 - t.directory_bits) : 0));
  }
  for (unsigned i = 0; i < n; ++i) {
    if (__builtin_expect(!directory_range(t, group->targets[i], low + i, high + i), 0))
      return bad_directory(t, high[i], group->fault);
    __builtin_prefetch(t.keys + low[i]);
    __builtin_prefetch(t.keys + low[i] + 8);
  }
  group->count = 0;
  for (unsigned i = 0; i < n; ++i) {
    const uint64_t b = find_block<Isa>(t, group->targets[i], low[i], high[i]);
    if (__builtin_expect(!encloses(t, b, group->targets[i]), 0)) return bad_directory(t, high[i], group->fault);
    blocks[i] = UINT64_MAX;
    if (b < t.block_count) {
      prefetch_block(t, b);
      group->waiting[group->count++] = i;
      blocks[i] = b;
      continue;
    }
    BlockHead head;  // nothing is that large, if the last key is right: its block's checksum says so
    const Status status = open_block(t, b - 1, &head, group->fault);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

// Looks for the fingerprints in their blocks.
template <class Isa>
inline Status look_inside(const Locating& group, uint64_t* blocks, uint32_t* ranks) {
  const TableView& t = group.t;
  Unread units[kWays];
  for (unsigned i = 0; i < group.count; i += kWays) {
    const unsigned take = group.count - i < kWays ? group.count - i : kWays;
    for (unsigned j = 0; j < take; ++j) units[j] = Unread{&t, blocks[group.waiting[i + j]], {}};
    unsigned bad;
    const Status status = load_codes<Isa>(units, take, group.scratch, &bad, group.fault);
    if (__builtin_expect(status != Status::ok, 0)) return status;
    for (unsigned j = 0; j < take; ++j) {
      const unsigned k = group.waiting[i + j];
      const uint64_t b = blocks[k];
      Cursor c;
      if (__builtin_expect(!seek<Isa>(block_at(t, b), units[j].head, group.scratch[j].h, group.targets[k], &c), 0)) {
        *group.fault = Fault{Status::bad_key, b, t.keys[b], group.targets[k]};
        return group.fault->status;
      }
      if (c.value == group.targets[k]) ranks[k] = c.index;
      else blocks[k] = UINT64_MAX;
    }
  }
  return Status::ok;
}

template <class Isa>
Status locate(const TableView& t, const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop, Fault* fault) {
  const size_t n = fingerprints.count;
  for (size_t i = 0; i < n; ++i) ranks[i] = 0;
  if (t.block_count == 0) {
    for (size_t i = 0; i < n; ++i) blocks[i] = UINT64_MAX;
    return Status::ok;
  }
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(UINT64_MAX, fault);
  Locating group{t, work.codes, fault, {}, {}, 0};
  for (size_t i = 0; i < n; i += kGroup) {
    const unsigned take = n - i < kGroup ? static_cast<unsigned>(n - i) : kGroup;
    if (__builtin_expect(should_stop(stop, take * kBlockWork), 0)) return interrupted(fault);
    Status status = choose_blocks<Isa>(&group, fingerprints.words + i, take, blocks + i);
    if (status == Status::ok) status = look_inside<Isa>(group, blocks + i, ranks + i);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace
}  // namespace fpstore
