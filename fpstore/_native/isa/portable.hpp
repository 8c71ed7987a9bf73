// The baseline instruction set: always there, and what the other sets are tested against.
#pragma once
#include "format/elias_fano_block.hpp"
#include "search/matches.hpp"
#include "search/seek.hpp"

namespace fpstore {
namespace {

// The steps of the kernels that an instruction set may have instructions for, in portable C++. The other sets are made from this
// one: what they replace has the same name and parameters.
template <class Width_>
struct Portable {
  using W = Width_;

  // From how many expected entries of a prefix on, and from how many look-ups in one block on, comparing all its entries beats
  // looking for the prefix in its codes.
  static constexpr uint64_t kExpandFrom = 64;
  static constexpr unsigned kExpandShared = UINT32_MAX;  // never: looking is cheaper

  // The checksum of a block.
  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) { return fpstore::block_sum(p, bytes, seed); }

  // Total length of the codes of h[0, n), in bits; n is at most kRoundSymbols, and 64 bytes of h can be read.
  static uint32_t code_bits(const DecodeTable& code, const uint8_t* h, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; ++i) sum += code.bits[h[i]];
    return sum;
  }

  // Total length of the tails of h[0, n), in bits.
  static uint32_t tail_bits(const uint8_t* h, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; ++i) sum += tail_length<W>(h[i]);
    return sum;
  }

  // Entries from h[0, n) and the entry e before them into out; the tails must lie inside the block. Returns the last entry.
  static uint64_t expand_tails(const Tails& tails, const uint8_t* h, uint32_t n, uint64_t e, uint64_t* out) {
    const uint8_t* const p = tails.p;
    uint32_t at = tails.at;
    uint8_t least = kSymbols;
    for (uint32_t i = 0; i < n; ++i) least = h[i] < least ? h[i] : least;
    if (kHasLongTails<W> && __builtin_expect(least < kShortTailFrom, 0)) {
      for (uint32_t i = 0; i < n; ++i) {
        out[i] = e = keep_before<W>(e, h[i]) | tail_value<W>(p, at, h[i]);
        at += tail_length<W>(h[i]);
      }
      return e;
    }
    --at;  // where the set bit belongs
    for (uint32_t i = 0; i < n; ++i) {
      const unsigned s = h[i];
      const uint64_t w = load64be(p + (at >> 3)) << (at & 7) | uint64_t{1} << 63;
      out[i] = e = keep_before<W>(e, s) | (shifted<W>(w, s) & top_mask(W::kLast + 1));
      at += tail_length<W>(s);
    }
    return e;
  }

  // The first entry of h[from, n) whose first differing bit is at or before limit; n if none.
  static uint32_t find_at_most(const uint8_t* h, uint32_t from, uint32_t n, unsigned limit) {
    while (from < n && h[from] > limit) ++from;
    return from;
  }

  // How many bits of x are set, and the place of set bit number k, from 0 and the lowest on; it is there.
  static unsigned count_ones(uint64_t x) { return ones(x); }
  static unsigned select(uint64_t x, unsigned k) {
    for (; k; --k) x &= x - 1;
    return static_cast<unsigned>(__builtin_ctzll(x));
  }

  // The high parts of as many of the first entries as this set takes at once, at their place in the leading word, into out, which has
  // room for count. Returns how many, and how many bits they took: a multiple of 8.
  static uint32_t expand_highs(const HighParts&, uint32_t, uint64_t*, uint32_t*) { return 0; }

  // Adds the low parts of as many of the first entries as this set takes at once to their high parts. Returns how many.
  static uint32_t add_lows(const LowParts&, uint32_t, uint64_t*) { return 0; }

  // How many of keys[0, n) are smaller than target, n small.
  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    uint64_t below = 0;
    for (uint64_t i = 0; i < n; ++i) below += keys[i] < target;
    return below;
  }

  // Reports the entries within the radius of a query of a scan. False when memory runs out.
  static bool match_values(const ScanQuery<W>& q, const Leads& entries) {
    for (uint32_t i = 0; i < entries.n; ++i) {
      const unsigned distance = ones(entries.values[i] ^ lead(q.permuted));
      if (__builtin_expect(distance <= q.radius, 0) && !emit(q, entries.values[i], distance, entries.rests + i * W::kRestBytes))
        return false;
    }
    return true;
  }

  // The first entry that is not below the target. Where it is cannot be foretold: no step branches on it.
  static uint32_t lower_bound(const Leads& entries, uint64_t target) {
    const uint64_t* first = entries.values;
    uint32_t n = entries.n;
    for (; n > 1; n -= n / 2) first += first[n / 2 - 1] < target ? n / 2 : 0;
    return static_cast<uint32_t>(first - entries.values) + (*first < target);
  }

  // The same for a look-up, of those that have its prefix, which stand together.
  static bool filter_values(const Emitter<W>& out, const Item<W>& item, const Leads& entries) {
    for (uint32_t i = lower_bound(entries, item.target); i < entries.n && entries.values[i] <= item.last; ++i) {
      const uint64_t value = entries.values[i];
      const unsigned distance = ones(value ^ lead(item.base));
      if (distance <= out.options.radius && !emit(out, item, value, distance, entries.rests + i * W::kRestBytes)) return false;
    }
    return true;
  }

  // Does seek_group() for seeks that this set can take together; false, with nothing done, when it cannot.
  static bool seek_together(const CodeSeek*, unsigned, Cursor*, bool*) { return false; }

  // Writes the places of those within the radius, ascending, and returns how many; places has room for n.
  static size_t near(const uint64_t* keys, size_t n, uint64_t query, unsigned radius, uint32_t* places) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
      const size_t end = n - i < 4 ? n : i + 4;
      if (end == i + 4) {
        unsigned any = 0;  // the sign of distance - (radius + 1)
        for (size_t j = 0; j < 4; ++j) any |= ones(keys[i + j] ^ query) - (radius + 1);
        if (!(any >> 31)) {
          i = end;
          continue;
        }
      }
      for (; i < end; ++i)
        if (ones(keys[i] ^ query) <= radius) places[count++] = static_cast<uint32_t>(i);
    }
    return count;
  }
};

}  // namespace
}  // namespace fpstore
