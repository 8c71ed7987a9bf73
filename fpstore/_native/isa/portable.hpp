// The baseline instruction set: always there, and what the other sets are tested against.
#pragma once
#include "format/elias_fano_block.hpp"
#include "search/matches.hpp"
#include "search/seek.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// Of each byte, the places of its set bits, ascending, less how many are set before: by how much
// high parts grow; and how many bits are not set, four times: by how much they grow behind it. Four
// to a word.
struct BitPlaces {
  uint64_t of[256][2];
  uint64_t zeros[256];
};
constexpr uint64_t kFourTimes = 0x0001000100010001;

constexpr BitPlaces make_bit_places() {
  BitPlaces places{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    unsigned set = 0;
    for (unsigned bit = 0; bit < 8; ++bit)
      if (byte >> bit & 1) {
        places.of[byte][set / 4] |= uint64_t{bit - set} << set % 4 * 16;
        ++set;
      }
    places.zeros[byte] = (8 - set) * kFourTimes;
  }
  return places;
}

constexpr BitPlaces kBitPlaces = make_bit_places();

// The steps of the kernels that an instruction set may have instructions for, in portable C++. The
// other sets are made from this one: what they replace has the same name and parameters.
template <class Width_>
struct Portable {
  using W = Width_;

  // From how many expected entries of a prefix on, and from how many look-ups in one block on,
  // comparing all its entries beats looking for the prefix in its codes.
  static constexpr uint64_t kExpandFrom = 64;
  static constexpr unsigned kExpandShared = UINT32_MAX;  // never: looking is cheaper
  // Of vectors, and how many of them with least values are in registers together.
  static constexpr size_t kVectorBytes = 16, kMinimaVectors = 4;

  // The checksum of a block.
  static uint32_t block_sum(const uint8_t* p, uint32_t bytes, uint64_t seed) {
    return fpstore::block_sum(p, bytes, seed);
  }

  // Total length of the codes of h[0, n), in bits; n is at most kRoundSymbols, and 64 bytes of h
  // can be read.
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

  // Entries from h[0, n) and the entry e before them into out; the tails must lie inside the block.
  // Returns the last entry.
  static uint64_t expand_tails(const Tails& tails, const uint8_t* h, uint32_t n, uint64_t e,
                               uint64_t* out) {
    const uint8_t* const p = tails.p;
    uint32_t at = tails.at;
    uint8_t least = kSymbols;
    for (uint32_t i = 0; i < n; ++i) least = h[i] < least ? h[i] : least;
    if (kHasLongTails<W> && FPSTORE_UNLIKELY(least < kShortTailFrom)) {
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

  // How many bits of x are set, and the place of set bit number k < 64, from 0 and the lowest on;
  // 63 or 64 where there is none.
  static unsigned count_ones(uint64_t x) { return ones(x); }
  static unsigned select(uint64_t x, unsigned k) {
    for (; k; --k) x &= x - 1;
    return static_cast<unsigned>(__builtin_ctzll(x | top_mask(1)));
  }

  // By how much the high part of each entry exceeds that of the key before, into rises, which has
  // room for as many as the stream has bits, and Workspace::kBehind. Returns how many ones the
  // stream has.
  static uint32_t expand_highs(const HighParts& highs, uint16_t* rises) {
    uint64_t zeros = 0;  // so far, four times
    for (uint32_t at = 0; at < highs.bits; at += 8) {
      unsigned byte = highs.p[at / 8];
      if (FPSTORE_UNLIKELY(highs.bits - at < 8)) byte &= (1u << (highs.bits - at)) - 1;
      uint8_t* const to = reinterpret_cast<uint8_t*>(rises + (at - (zeros & 0xFFFF)));
      store64(to, kBitPlaces.of[byte][0] + zeros);
      store64(to + 8, kBitPlaces.of[byte][1] + zeros);
      zeros += kBitPlaces.zeros[byte];
    }
    return (highs.bits + 7) / 8 * 8 - static_cast<uint32_t>(zeros & 0xFFFF);
  }

  // The leading words of count entries, by their high and low parts, into out, which has room for
  // Workspace::kValuesBehind more. A low part has at most 57 bits, what a load of eight bytes holds
  // wherever they begin. It has the same place in its bytes as the one eight entries before, for
  // eight take as many bytes as one takes bits.
  static void join_parts(const HighParts& highs, const uint16_t* rises, const LowParts& lows,
                         uint32_t count, uint64_t* out) {
    const uint64_t mask = (uint64_t{1} << lows.bits) - 1;
    const uint64_t one = uint64_t{1} << highs.shift, before = highs.before << highs.shift;
    const uint8_t* p = lows.block + (lows.at >> 3);
    uint32_t from[8], shifts[8];
    for (unsigned k = 0; k < 8; ++k) {
      const uint32_t at = (lows.at & 7) + k * lows.bits;
      from[k] = at >> 3;
      shifts[k] = at & 7;
    }
    uint32_t i = 0;
    const auto word = [&](unsigned k) {
      // Read into a register: the vectors of the compiler cannot shift each word by an amount of
      // its own.
      const uint64_t low = read_once(load64(p + from[k])) >> shifts[k] & mask;
      return (before + rises[i + k] * one) | low << kUnused<W>;
    };
    for (; i + 8 <= count; i += 8, p += lows.bits)
      for (unsigned k = 0; k < 8; ++k) out[i + k] = word(k);
    for (unsigned k = 0; i + k < count; ++k) out[i + k] = word(k);
  }

  // How many of keys[0, n) are smaller than target, n small.
  static uint64_t count_below(const uint64_t* keys, uint64_t n, uint64_t target) {
    uint64_t below = 0;
    for (uint64_t i = 0; i < n; ++i) below += keys[i] < target;
    return below;
  }

  // Up to 16 of the entries.
  static LeadingWords some_of(const LeadingWords& entries, uint32_t from) {
    return LeadingWords{entries.values + from, entries.rests + from * W::kRestBytes,
                        entries.n - from < 16 ? entries.n - from : 16, entries.block};
  }

  // Reports the entries within the radius of a query of a scan. False when memory runs out.
  static bool match_values(const ScanQuery<W>& q, const LeadingWords& entries) {
    for (uint32_t i = 0; i < entries.n; ++i) {
      const unsigned distance = ones(entries.values[i] ^ leading_word(q.permuted));
      if (FPSTORE_UNLIKELY(distance <= q.radius) &&
          !emit(q, entries.values[i], distance, entries.rests + i * W::kRestBytes))
        return false;
    }
    return true;
  }

  // The first entry that is not below the target. Where it is cannot be foretold: no step branches
  // on it.
  static uint32_t lower_bound(const LeadingWords& entries, uint64_t target) {
    const uint64_t* first = entries.values;
    // A mask, since the compiler would make a branch of a choice.
    for (uint64_t n = entries.n, half; half = n / 2, n > 1; n -= half)
      first += half & -uint64_t{first[half - 1] < target};
    return static_cast<uint32_t>(first - entries.values) + (*first < target);
  }

  // Whether one of kAtOnce words differs from the base in at most radius bits. They can be read;
  // those past the entries may be anything.
  static constexpr unsigned kAtOnce = 8;
  static bool any_near(const uint64_t* values, uint64_t base, unsigned radius) {
    bool any = false;
    for (unsigned k = 0; k < kAtOnce; ++k) any |= ones(values[k] ^ base) <= radius;
    return any;
  }

  // Reports the entries within the radius of a look-up that have its prefix: they stand together,
  // and the first of them is not before from. False when memory runs out.
  static bool filter_values(const Emitter<W>& out, const Item<W>& item, const LeadingWords& entries,
                            uint32_t from) {
    return filter_some(out, item, entries, from, entries.n);
  }

  // Of the entries from one on, up to another, while they have the prefix, which the first one has
  // or is beyond.
  static bool filter_some(const Emitter<W>& out, const Item<W>& item, const LeadingWords& entries,
                          uint32_t from, uint32_t to) {
    if (to > entries.n) to = entries.n;
    for (uint32_t i = from; i < to && entries.values[i] <= item.last; ++i) {
      const uint64_t value = entries.values[i];
      const unsigned distance = ones(value ^ leading_word(item.base));
      if (distance <= out.options.radius &&
          !emit(out, item, value, distance, entries.rests + i * W::kRestBytes, {entries.block, i}))
        return false;
    }
    return true;
  }

  // Does seek_group() for seeks that this set can take together; false, with nothing done, when it
  // cannot.
  static bool seek_together(const CodeSeek*, unsigned, Cursor*, bool*) { return false; }

  // Writes the places of those within the radius, ascending, and returns how many; places has room
  // for n.
  static size_t within_radius(const uint64_t* keys, size_t n, uint64_t query, unsigned radius,
                              uint32_t* places) {
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

}  // namespace FPSTORE_ISA
}  // namespace fpstore
