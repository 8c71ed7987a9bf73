// The codecs: what reading and searching ask of the blocks of each. A class of blocks has the steps
// of an instruction set, too.
#pragma once
#include "format/elias_fano_block.hpp"
#include "search/matches.hpp"
#include "search/seek.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kFew = 4;  // entries that a short way to those with a prefix looks at

// What came of it.
enum class Shortcut { undecided, done, no_memory };

template <class Isa>
struct HuffmanBlocks : Isa {
  using W = typename Isa::W;
  using OpenBlock = Unread<HuffmanHead>;
  static constexpr unsigned kTogether = kWays;  // blocks that are best opened together
  static constexpr bool kReached =
      false;  // whether an entry is reached without decoding those before it

  // Checks a block, of which nothing is read.
  static Status check(const TableView& t, uint64_t b, Fault* fault) {
    HuffmanHead head;
    return read_head<Isa>(t, b, &head, fault);
  }

  // Opens n <= kWays blocks; otherwise *bad is the first one at fault.
  static Status open(OpenBlock* units, unsigned n, const Workspace& work, unsigned* bad,
                     Fault* fault) {
    return load_codes<Isa>(units, n, work.codes, bad, fault);
  }

  // The leading words of the entries of an opened block, number k of those opened together, into
  // out (room for its count, and Workspace::kValuesBehind), checked against its key.
  static Status expand(const OpenBlock& unit, const Workspace& work, unsigned k, uint64_t* out,
                       Fault* fault) {
    const TableView& t = *unit.table;
    out[0] = unit.head.first;
    const Tails tails{block_at(t, unit.block), t.block_bytes + kOverread, unit.head.tail_at};
    const uint64_t last =
        Isa::expand_tails(tails, work.codes[k], unit.head.count - 1, unit.head.first, out + 1);
    if (FPSTORE_UNLIKELY(last != t.keys[unit.block] || !key_is_last<W>(unit)))
      return bad_key(t, unit.block, last, fault);
    return Status::ok;
  }

  // Finds the first entry whose leading word is not below the target; false if there is none.
  static bool find(const OpenBlock& unit, const Workspace& work, unsigned k, uint64_t target,
                   Cursor* c) {
    return seek<Isa>(block_at(*unit.table, unit.block), unit.head, work.codes[k], target, c);
  }

  // The same for up to kWays targets; false in fine where there is none.
  static void find_group(const Workspace& work, const Seek<OpenBlock>* seeks, unsigned n,
                         Cursor* cursors, bool* fine) {
    CodeSeek in_codes[kWays];
    for (unsigned i = 0; i < n; ++i) {
      const OpenBlock& unit = *seeks[i].unit;
      in_codes[i] = CodeSeek{block_at(*unit.table, unit.block), &unit.head, work.codes[seeks[i].k],
                             seeks[i].target};
    }
    if (Isa::seek_together(in_codes, n, cursors, fine)) return;
    for (unsigned i = 0; i < n; ++i)
      fine[i] = find(*seeks[i].unit, work, seeks[i].k, seeks[i].target, cursors + i);
  }

  // Moves a cursor to the next entry; false at the end.
  static bool next(const OpenBlock& unit, const Workspace& work, unsigned k, Cursor* c) {
    if (c->index + 1 >= unit.head.count) return false;
    const unsigned h = work.codes[k][c->index++];
    c->value =
        keep_before<W>(c->value, h) | tail_value<W>(block_at(*unit.table, unit.block), c->at, h);
    c->at += tail_length<W>(h);
    return true;
  }
};

// The same steps. Those that look for one place are not chains of loads, so the processor takes
// several at once by itself.
template <class Isa>
struct EliasFanoBlocks : Isa {
  using W = typename Isa::W;
  using OpenBlock = Unread<EliasFanoHead>;
  static constexpr unsigned kTogether = 1;
  static constexpr bool kReached = true;

  static Status check(const TableView& t, uint64_t b, Fault* fault) {
    EliasFanoHead head;
    return read_head<Isa>(t, b, &head, fault);
  }

  static Status open_one(OpenBlock* unit, Fault* fault) {
    return read_head<Isa>(*unit->table, unit->block, &unit->head, fault);
  }

  static Status open(OpenBlock* units, unsigned n, const Workspace&, unsigned* bad, Fault* fault) {
    for (unsigned k = 0; k < n; ++k) {
      *bad = k;
      FPSTORE_TRY(open_one(units + k, fault));
    }
    return Status::ok;
  }

  static Status expand(const OpenBlock& unit, const Workspace& work, unsigned, uint64_t* out,
                       Fault* fault) {
    const TableView& t = *unit.table;
    const uint8_t* const p = block_at(t, unit.block);
    const EliasFanoHead& head = unit.head;
    const HighParts highs{p + kEliasFanoHeaderBytes, head.highs, head.high, high_shift<W>(head)};
    const uint32_t count = head.count, ones = Isa::expand_highs(highs, work.rises);
    if (FPSTORE_UNLIKELY(ones != count))
      return bad_bits(unit.block, count, ones < count ? ones : count + 1, fault);
    if (FPSTORE_LIKELY(head.low_bits <= kLoadedBits))
      Isa::join_parts(highs, work.rises,
                      LowParts{p, kHighsAt + head.highs, head.low_bits, t.block_bytes + kOverread},
                      count, out);
    else
      for (uint32_t i = 0; i < count; ++i)
        out[i] = entry_at<W>(p, head, i, head.high + work.rises[i]);
    if (FPSTORE_UNLIKELY(out[count - 1] != t.keys[unit.block] || !key_is_last<W>(unit)))
      return bad_key(t, unit.block, out[count - 1], fault);
    return Status::ok;
  }

  static bool find(const OpenBlock& unit, const Workspace&, unsigned, uint64_t target, Cursor* c) {
    const uint8_t* const p = block_at(*unit.table, unit.block);
    const uint64_t high = target >> high_shift<W>(unit.head);
    const uint64_t zeros = high > unit.head.high ? high - unit.head.high : 0;
    const uint32_t at = behind_zeros<Isa>(p, unit.head, zeros);
    if (FPSTORE_UNLIKELY(at < zeros)) return false;
    *c = Cursor{at - static_cast<uint32_t>(zeros), at, 0};
    for (;;) {
      if (!advance<W>(p, unit.head, c)) return false;
      if (c->value >= target) return true;
      ++c->index;
      ++c->at;
    }
  }

  // Reports the matches of an item in a block where they are among four entries from the first with
  // the target's high part on, as nearly always when few entries share the prefix. Which of them do
  // cannot be foretold, so nothing branches on it.
  static Shortcut filter_few(const Emitter<W>& out, const Item<W>& item, const OpenBlock& unit) {
    const uint8_t* const p = block_at(*unit.table, unit.block);
    const EliasFanoHead& head = unit.head;
    const unsigned shift = high_shift<W>(head);
    const uint64_t high = item.target >> shift, base = leading_word(item.base);
    const uint64_t zeros = (high - head.high) & -uint64_t{high > head.high};
    const uint32_t at = behind_zeros<Isa>(p, head, zeros),
                   index = at - static_cast<uint32_t>(zeros);
    // At the end of the high parts there is none.
    if (FPSTORE_UNLIKELY(at < zeros || at == head.highs || index + kFew > head.count ||
                         head.low_bits > kLoadedBits))
      return Shortcut::undecided;
    uint64_t ones = read_once(bits_from(p, kHighsAt + at));
    ones &= ((uint64_t{1} << ((head.highs - at) & 63)) - 1) | -uint64_t{head.highs - at >= 64};
    const uint64_t third = (ones & (ones - 1)) & ((ones & (ones - 1)) - 1);
    if (FPSTORE_UNLIKELY((third & (third - 1)) == 0)) return Shortcut::undecided;
    const uint64_t low_mask = (uint64_t{1} << head.low_bits) - 1, first = head.high + at - index;
    uint32_t low_at = kHighsAt + head.highs + index * head.low_bits;
    uint64_t values[kFew];
    unsigned near = 0;
    for (unsigned k = 0; k < kFew; ++k, ones &= ones - 1, low_at += head.low_bits) {
      const uint64_t high_part = first - k + static_cast<unsigned>(__builtin_ctzll(ones));
      values[k] = high_part << shift | (bits_from(p, low_at) & low_mask) << kUnused<W>;
      near |= static_cast<unsigned>(Isa::count_ones(values[k] ^ base) <= out.options.radius) << k;
    }
    if (FPSTORE_UNLIKELY(values[kFew - 1] <= item.last)) return Shortcut::undecided;
    for (; near; near &= near - 1) {
      const unsigned k = static_cast<unsigned>(__builtin_ctz(near));
      if (!item.has_prefix(values[k])) continue;
      if (!emit(out, item, values[k], Isa::count_ones(values[k] ^ base),
                rest_at<W>(p, head, index + k), {unit.block, index + k}))
        return Shortcut::no_memory;
    }
    return Shortcut::done;
  }

  // Moves a cursor to the next entry; false at the end.
  static bool next(const OpenBlock& unit, const Workspace&, unsigned, Cursor* c) {
    ++c->index;
    ++c->at;
    return advance<W>(block_at(*unit.table, unit.block), unit.head, c);
  }

  static void find_group(const Workspace& work, const Seek<OpenBlock>* seeks, unsigned n,
                         Cursor* cursors, bool* fine) {
    for (unsigned i = 0; i < n; ++i)
      fine[i] = find(*seeks[i].unit, work, seeks[i].k, seeks[i].target, cursors + i);
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
