// Reading all of a table's blocks, one after the other. Blocks has the steps of a codec, and of an
// instruction set (search/codecs.hpp).
#pragma once
#include "format/workspace.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr uint32_t kAheadBytes = 1 << 13;

// The rows of an opened block into out; roomy when there is room for Workspace::kValuesBehind more.
template <class Blocks>
inline Status expand_rows(const typename Blocks::OpenBlock& unit, const Workspace& work, unsigned k,
                          uint64_t* out, bool roomy, Fault* fault) {
  using W = typename Blocks::W;
  if (!W::kWide && FPSTORE_LIKELY(roomy)) return Blocks::expand(unit, work, k, out, fault);
  const Status status = Blocks::expand(unit, work, k, work.values, fault);
  const uint8_t* const block = block_at(*unit.table, unit.block);
  for (uint32_t i = 0; i < unit.head.count && status == Status::ok; ++i)
    rows<typename W::Row>(out)[i] = row_of<W>(work.values[i], rest_at<W>(block, unit.head, i));
  return status;
}

// The blocks from b on that are opened together; those that follow some way behind are fetched into
// the cache.
template <class OpenBlock>
inline unsigned take_blocks(const TableView& t, uint64_t b, uint64_t end, OpenBlock* units) {
  const uint8_t* ahead = block_at(t, b) + kAheadBytes;
  const uint8_t* const stop = block_at(t, end);
  for (uint32_t i = 0; i < kWays * t.block_bytes && ahead + i < stop; i += 64)
    fetch_line(ahead + i);
  unsigned n = 0;
  for (; n < kWays && b + n < end; ++n) units[n] = OpenBlock{&t, b + n, {}};
  return n;
}

// Calls use(unit, k) for each of the blocks, where k is its place among those opened together.
template <class Blocks, class Use>
inline Status each_opened(const TableView& t, const BlockRange& range, const Workspace& work,
                          Fault* fault, Use use) {
  typename Blocks::OpenBlock units[kWays];
  for (uint64_t b = range.begin; b < range.end;) {
    const unsigned n = take_blocks(t, b, range.end, units);
    unsigned bad;
    Status status = Blocks::open(units, n, work, &bad, fault);
    for (unsigned k = 0; k < n && status == Status::ok; ++k, ++b) status = use(units[k], k);
    if (FPSTORE_UNLIKELY(status != Status::ok)) return status;
  }
  return Status::ok;
}

// Calls use(unit, values) for each of the blocks, with the leading words of its entries.
template <class Blocks, class Use>
inline Status each_block(const TableView& t, const BlockRange& range, Fault* fault, Use use) {
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(fault);
  return each_opened<Blocks>(
      t, range, work, fault, [&](const typename Blocks::OpenBlock& unit, unsigned k) {
        const Status status = Blocks::expand(unit, work, k, work.values, fault);
        return status == Status::ok ? use(unit, work.values) : status;
      });
}

template <class Blocks>
Status decode_all(const TableView& t, const BlockRange& range, Decoded* to, Fault* fault) {
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(fault);
  bool full = false;
  const Status status = each_opened<Blocks>(
      t, range, work, fault, [&](const typename Blocks::OpenBlock& unit, unsigned k) {
        // Only the count of an opened block says what is written.
        full = unit.head.count > to->room - to->written;
        if (full) return Status::interrupted;
        if (to->counts) to->counts[unit.block - range.begin] = unit.head.count;
        const bool roomy = to->room - to->written >= unit.head.count + Workspace::kValuesBehind;
        const Status one = expand_rows<Blocks>(
            unit, work, k, to->entries + to->written * Blocks::W::kWords, roomy, fault);
        to->written += unit.head.count;
        ++to->blocks;
        return one;
      });
  return full ? Status::ok : status;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
