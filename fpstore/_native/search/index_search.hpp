// Which block holds a key: the directory, then the key index.
#pragma once
#include "search/request.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kGroup =
    64;  // look-ups in flight: enough to cover the memory latency of three dependent stages

// The part of the key index in which the first key >= target lies, from the directory; false when
// that is damaged.
inline bool directory_range(const TableView& t, uint64_t target, uint64_t* low, uint64_t* high) {
  const uint64_t slot = leading_bits(target, t.directory_bits);
  *low = read_once(t.directory[slot]);
  *high = read_once(t.directory[slot + 1]);
  return *low <= *high && *high <= t.block_count;
}

// The first block whose key is >= target, searched in [low, high]; block_count if none.
template <class Isa>
inline uint64_t find_block(const TableView& t, uint64_t target, uint64_t low, uint64_t high) {
  while (high - low > 24) {
    const uint64_t middle = low + (high - low) / 2;
    if (t.keys[middle] < target)
      low = middle + 1;
    else
      high = middle;
  }
  return low + Isa::count_below(t.keys + low, high - low, target);
}

// A block that a wrong directory led to is not the one whose neighbouring keys enclose the target.
// The keys themselves are covered by the checksums of the blocks on both sides, of which one is
// read next.
inline bool encloses(const TableView& t, uint64_t b, uint64_t target) {
  return (b == 0 || t.keys[b - 1] < target) && (b == t.block_count || target <= t.keys[b]);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
