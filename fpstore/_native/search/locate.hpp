// Finding single fingerprints in a table.
#pragma once
#include "search/index_search.hpp"
#include "search/codecs.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

inline Status bad_directory(const TableView& t, uint64_t high, Fault* fault) {
  *fault = Fault{Status::bad_directory, UINT64_MAX, t.block_count, high};
  return fault->status;
}

// A group of fingerprints on their way through stages like those of a probe.
template <class W>
struct Locating {
  const TableView& t;
  const Workspace& work;
  Fault* fault;
  typename W::Row targets[kGroup];
  unsigned waiting[kGroup];  // those whose block is to be read
  unsigned count;
};

// The key of a block, as the index has it.
template <class W>
inline typename W::Row key_row(const TableView& t, uint64_t b) {
  return row_of<W>(t.keys[b], reinterpret_cast<const uint8_t*>(t.key_rests + b * W::kRestWords));
}

// The first block from b on whose key is not below the target, where keys from b on begin with its
// leading word. Only the keys' blocks say whether the words behind it are right, so those of both
// neighbours are read; if it is b, look_inside() reads it.
template <class Blocks>
inline Status pass_ties(const TableView& t, const typename Blocks::W::Row& target,
                        const Workspace& work, uint64_t* b, Fault* fault) {
  using W = typename Blocks::W;
  if (*b == t.block_count || t.keys[*b] != leading_word(target) || !(key_row<W>(t, *b) < target))
    return Status::ok;
  uint64_t low = *b + 1, step = 1;  // the key before low is below the target
  while (low + step <= t.block_count && key_row<W>(t, low + step - 1) < target) {
    low += step;
    step *= 2;
  }
  uint64_t high = low + step <= t.block_count ? low + step - 1 : t.block_count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (key_row<W>(t, middle) < target)
      low = middle + 1;
    else
      high = middle;
  }
  *b = low;
  for (uint64_t near = low - 1; near <= low && near < t.block_count; ++near) {
    typename Blocks::OpenBlock unit{&t, near, {}};
    unsigned bad;
    Status status = Blocks::open(&unit, 1, work, &bad, fault);
    if (status == Status::ok) status = Blocks::expand(unit, work, 0, work.values, fault);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// Finds the block that each fingerprint would be in; UINT64_MAX where it is larger than all.
template <class Blocks>
inline Status choose_blocks(Locating<typename Blocks::W>* group,
                            const typename Blocks::W::Row* fingerprints, unsigned n,
                            uint64_t* blocks) {
  using W = typename Blocks::W;
  const TableView& t = group->t;
  uint64_t low[kGroup], high[kGroup];
  for (unsigned i = 0; i < n; ++i) {
    group->targets[i] = apply(t.forward, fingerprints[i]);
    fetch_line(t.directory + leading_bits(leading_word(group->targets[i]), t.directory_bits));
  }
  for (unsigned i = 0; i < n; ++i) {
    if (FPSTORE_UNLIKELY(!directory_range(t, leading_word(group->targets[i]), low + i, high + i)))
      return bad_directory(t, high[i], group->fault);
    fetch_line(t.keys + low[i]);
    fetch_line(t.keys + low[i] + 8);
  }
  group->count = 0;
  for (unsigned i = 0; i < n; ++i) {
    uint64_t b = find_block<Blocks>(t, leading_word(group->targets[i]), low[i], high[i]);
    if (FPSTORE_UNLIKELY(!encloses(t, b, leading_word(group->targets[i]))))
      return bad_directory(t, high[i], group->fault);
    if constexpr (W::kWide) {
      FPSTORE_TRY(pass_ties<Blocks>(t, group->targets[i], group->work, &b, group->fault));
    }
    blocks[i] = UINT64_MAX;
    if (b < t.block_count) {
      prefetch_block(t, b);
      group->waiting[group->count++] = i;
      blocks[i] = b;
      continue;
    }
    // Nothing is that large, if the last key is right: its block's checksum says so.
    FPSTORE_TRY(Blocks::check(t, b - 1, group->fault));
  }
  return Status::ok;
}

// Whether the entry at the cursor, the first of its block whose leading word is not below the
// target's, or one that follows with the same leading word is the target, where the cursor is left.
template <class Blocks, class W = typename Blocks::W>
inline bool is_there(const typename Blocks::OpenBlock& unit, const Workspace& work, unsigned k,
                     const typename W::Row& target, Cursor* c) {
  const uint8_t* const block = block_at(*unit.table, unit.block);
  while (c->value == leading_word(target)) {
    const auto entry = row_of<W>(c->value, rest_at<W>(block, unit.head, c->index));
    if (!(entry < target)) return entry == target;
    if (!Blocks::next(unit, work, k, c)) return false;
  }
  return false;
}

// Looks for the fingerprints in their blocks.
template <class Blocks>
inline Status look_inside(const Locating<typename Blocks::W>& group, uint64_t* blocks,
                          uint32_t* ranks) {
  using W = typename Blocks::W;
  const TableView& t = group.t;
  typename Blocks::OpenBlock units[kWays];
  for (unsigned i = 0; i < group.count; i += kWays) {
    const unsigned batch = group.count - i < kWays ? group.count - i : kWays;
    for (unsigned j = 0; j < batch; ++j) units[j] = {&t, blocks[group.waiting[i + j]], {}};
    unsigned bad;
    FPSTORE_TRY(Blocks::open(units, batch, group.work, &bad, group.fault));
    for (unsigned j = 0; j < batch; ++j) {
      const unsigned k = group.waiting[i + j];
      const uint64_t b = blocks[k];
      const auto& target = group.targets[k];
      if (FPSTORE_UNLIKELY(!key_is_last<W>(units[j]))) return bad_key(t, b, t.keys[b], group.fault);
      Cursor c;
      if (FPSTORE_UNLIKELY(!Blocks::find(units[j], group.work, j, leading_word(target), &c)))
        return bad_key(t, b, leading_word(target), group.fault);
      if (is_there<Blocks>(units[j], group.work, j, target, &c))
        ranks[k] = c.index;
      else
        blocks[k] = UINT64_MAX;
    }
  }
  return Status::ok;
}

template <class Blocks>
Status locate_in_blocks(const TableView& t, const Queries& fingerprints, uint64_t* blocks,
                        uint32_t* ranks, Stopper* stop, Fault* fault) {
  const size_t n = fingerprints.count;
  for (size_t i = 0; i < n; ++i) ranks[i] = 0;
  if (t.block_count == 0) {
    for (size_t i = 0; i < n; ++i) blocks[i] = UINT64_MAX;
    return Status::ok;
  }
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(fault);
  using W = typename Blocks::W;
  Locating<W> group{t, work, fault, {}, {}, 0};
  for (size_t i = 0; i < n; i += kGroup) {
    const unsigned batch = n - i < kGroup ? static_cast<unsigned>(n - i) : kGroup;
    if (FPSTORE_UNLIKELY(should_stop(stop, batch * kBlockWork))) return interrupted(fault);
    Status status = choose_blocks<Blocks>(&group, rows<typename W::Row>(fingerprints.words) + i,
                                          batch, blocks + i);
    if (status == Status::ok) status = look_inside<Blocks>(group, blocks + i, ranks + i);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
