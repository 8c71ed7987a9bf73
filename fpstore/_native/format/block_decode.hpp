// Block decoder. Isa has the steps that an instruction set may have instructions for (isa/portable.hpp).
#pragma once
#include "format/block_format.hpp"

namespace fpstore {
namespace {

// A round takes four look-ups from one window. Its last one overlaps the load of the next window.
constexpr unsigned kRoundLookups = 4;
constexpr unsigned kRoundSymbols = kRoundLookups * kLookupSymbols;
constexpr unsigned kRoundBits = kRoundLookups * kLookupBits;

constexpr unsigned kWays = 4;  // blocks opened side by side: one alone would wait for its own look-ups

// The first differing bits of a block's entries, of all but the first.
struct Scratch {
  uint8_t* h;
};

// Where blocks of at most block_bytes are decoded. It is too large for the stack of a small thread, and without memory it is not
// fine.
class Workspace {
 public:
  explicit Workspace(uint32_t block_bytes) {
    const size_t symbols = (most_entries(block_bytes) + kBehind + 63) / 64 * 64;
    const size_t entries = most_entries(block_bytes) + 8;  // vectors are read and written whole
    bytes_ = kWays * symbols + entries * sizeof(uint64_t);
    memory_ = static_cast<uint8_t*>(take_memory(bytes_));
    if (!memory_) return;
    for (unsigned k = 0; k < kWays; ++k) codes[k].h = memory_ + k * symbols;
    values = reinterpret_cast<uint64_t*>(memory_ + kWays * symbols);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { give_back(memory_, bytes_); }
  bool fine() const { return memory_; }

  Scratch codes[kWays];
  uint64_t* values;  // room for the entries of one block

 private:
  static constexpr size_t kBehind = 64;  // the last round may go past the last symbol, and vectors are read there
  static_assert(kBehind >= kRoundSymbols + 8, "a round stores eight symbols at a time");
  uint8_t* memory_;
  size_t bytes_;
};

// Where decoding of a code stream stands. Up to a round past its end may be read and decoded: kOverread bytes are there.
struct CodeStream {
  const DecodeTable* code;
  const uint8_t* block;
  uint8_t* h;       // where the next symbol goes
  uint64_t window;  // the bits from at on: kRoundBits of them at least
  uint32_t at;
  uint32_t end;

  uint64_t load(uint32_t from) const { return load64be(block + (from >> 3)) << (from & 7); }
};
static_assert(64 - 7 - kLookupBits >= kRoundBits, "a window must last for a round");
static_assert((kRoundBits + kMaxCodeBits) / 8 + 1 + 8 <= kOverread, "a round that starts inside the stream reads behind it");

// One round of each of N streams, whose look-ups wait for one another only within a stream.
template <unsigned N>
inline void decode_round(CodeStream* streams) {
  uint64_t last[N];
  for (unsigned k = 0; k < N; ++k) {
    CodeStream& c = streams[k];
    const uint64_t* lookup = c.code->lookup;
    uint64_t window = c.window;
    uint64_t sum = 0;  // byte 0 the bits and byte 1 the symbols so far; what is above does not matter
    for (unsigned i = 0; i + 1 < kRoundLookups; ++i) {
      const uint64_t entry = lookup[window >> (64 - kLookupBits)];
      store64(c.h + (sum >> 8 & 0xFF), entry >> 16);
      sum += entry;
      window <<= entry & 63;
    }
    const uint64_t next = c.load(c.at + (sum & 0xFF));
    const uint64_t entry = lookup[window >> (64 - kLookupBits)];
    store64(c.h + (sum >> 8 & 0xFF), entry >> 16);
    sum += entry;
    c.window = next << (entry & 63);
    c.h += sum >> 8 & 0xFF;
    c.at += sum & 0xFF;
    last[k] = entry;
  }
  for (unsigned k = 0; k < N; ++k)
    // At a code of more than kLookupBits the look-ups stand still to the end of the round.
    if (__builtin_expect(last[k] == 0, 0)) {
      CodeStream& c = streams[k];
      c.at += decode_one(*c.code, c.load(c.at), c.h++);
      c.window = c.load(c.at);
    }
}

// Decodes the rest of a stream into the symbols from first on; false unless exactly wanted codes fill it.
template <class Isa>
inline bool finish_codes(CodeStream c, const uint8_t* first, uint32_t wanted) {
  uint32_t at = c.at, n = static_cast<uint32_t>(c.h - first);
  while (c.at < c.end) {
    at = c.at;
    n = static_cast<uint32_t>(c.h - first);
    decode_round<1>(&c);
  }
  // The last round may have gone past the end: of its symbols those that are still wanted must reach just to it.
  return n <= wanted && wanted <= static_cast<uint32_t>(c.h - first) && at + Isa::code_bits(*c.code, first + n, wanted - n) == c.end;
}

// A block to be opened, and what its header says.
struct Unread {
  const TableView* table;
  uint64_t block;
  BlockHead head;
};

template <class Isa, unsigned N>
inline bool decode_codes(const Unread* units, const Scratch* s) {
  CodeStream streams[N];
  bool fine = true;
  for (unsigned k = 0; k < N; ++k) {
    CodeStream& c = streams[k];
    c = CodeStream{&units[k].table->code, block_at(*units[k].table, units[k].block), s[k].h, 0, kBlockHeaderBytes * 8,
                   units[k].head.tail_at};
    c.window = c.load(c.at);
  }
  for (;;) {
    bool all = true;
    for (unsigned k = 0; k < N; ++k) all &= streams[k].at + kRoundBits <= streams[k].end;
    if (!all) break;
    decode_round<N>(streams);
  }
  for (unsigned k = 0; k < N; ++k) fine &= finish_codes<Isa>(streams[k], s[k].h, units[k].head.count - 1);
  for (unsigned k = 0; k < N; ++k)
    fine &= units[k].head.tail_at + Isa::tail_bits(s[k].h, units[k].head.count - 1) <= units[k].head.end * 8;
  return fine;
}

template <class Isa>
inline bool decode_group(const Unread* units, unsigned n, const Scratch* s) {
  switch (n) {
    case 1: return decode_codes<Isa, 1>(units, s);
    case 2: return decode_codes<Isa, 2>(units, s);
    case 3: return decode_codes<Isa, 3>(units, s);
    default: return decode_codes<Isa, 4>(units, s);
  }
}

constexpr uint32_t kAheadBytes = 1 << 13;

// Opens n <= kWays blocks and decodes their codes into s; after ok the tails of all entries lie inside their blocks. Otherwise *bad
// is the first one at fault.
template <class Isa>
inline Status load_codes(Unread* units, unsigned n, const Scratch* s, unsigned* bad, Fault* fault) {
  const uint8_t* data[kWays];
  uint64_t seeds[kWays], sums[kWays];
  bool alike = true;
  for (unsigned k = 0; k < n; ++k) {
    data[k] = block_at(*units[k].table, units[k].block) + 8;
    seeds[k] = checksum_seed(*units[k].table, units[k].block);
    alike &= units[k].table->block_bytes == units[0].table->block_bytes;
  }
  if (__builtin_expect(alike, 1)) {
    Isa::hash_group(data, units[0].table->block_bytes - 8, seeds, n, sums);
  } else {
    for (unsigned k = 0; k < n; ++k) sums[k] = xxh64(data[k], units[k].table->block_bytes - 8, seeds[k]);
  }
  for (unsigned k = 0; k < n; ++k) {
    *bad = k;
    const Status status = read_head<typename Isa::W>(*units[k].table, units[k].block, sums[k], &units[k].head, fault);
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  if (__builtin_expect(decode_group<Isa>(units, n, s), 1)) return Status::ok;
  // Which one is not fine is found by decoding them again.
  for (*bad = 0; *bad + 1 < n && decode_codes<Isa, 1>(units + *bad, s); ++*bad) {
  }
  return bad_bits(units[*bad].block, units[*bad].head, fault);
}

// Whether the words behind the leading one of a block's key are those of its last entry.
template <class W>
inline bool key_is_last(const Unread& unit) {
  if constexpr (W::kWide) {
    const uint8_t* const last = rest_at<W>(block_at(*unit.table, unit.block), unit.head, unit.head.count - 1);
    return memcmp(last, unit.table->key_rests + unit.block * W::kRestWords, W::kRestBytes) == 0;
  } else {
    (void)unit;
    return true;
  }
}

// The leading words of the entries of an opened block into out (room for its count), checked against its key.
template <class Isa>
inline Status expand_block(const Unread& unit, const Scratch& s, uint64_t* out, Fault* fault) {
  using W = typename Isa::W;
  const TableView& t = *unit.table;
  const BlockHead& head = unit.head;
  const uint8_t* const block = block_at(t, unit.block);
  out[0] = head.first;
  const Tails tails{block, t.block_bytes + kOverread, head.tail_at};
  const uint64_t last = Isa::expand(tails, s.h, head.count - 1, head.first, out + 1);
  if (__builtin_expect(last != t.keys[unit.block] || !key_is_last<W>(unit), 0)) {
    *fault = Fault{Status::bad_key, unit.block, t.keys[unit.block], last};
    return fault->status;
  }
  return Status::ok;
}

// The rows of an opened block into out.
template <class Isa>
inline Status expand_rows(const Unread& unit, const Workspace& work, const Scratch& s, uint64_t* out, Fault* fault) {
  using W = typename Isa::W;
  if constexpr (!W::kWide) {
    return expand_block<Isa>(unit, s, out, fault);
  } else {
    const Status status = expand_block<Isa>(unit, s, work.values, fault);
    const uint8_t* const block = block_at(*unit.table, unit.block);
    for (uint32_t i = 0; i < unit.head.count && status == Status::ok; ++i)
      rows<typename W::Row>(out)[i] = row_of<W>(work.values[i], rest_at<W>(block, unit.head, i));
    return status;
  }
}

// The blocks from b on that are opened together; those that follow some way behind are fetched into the cache.
inline unsigned take_blocks(const TableView& t, uint64_t b, uint64_t end, Unread* units) {
  const uint8_t* ahead = block_at(t, b) + kAheadBytes;
  const uint8_t* const stop = block_at(t, end);
  for (uint32_t i = 0; i < kWays * t.block_bytes && ahead + i < stop; i += 64) __builtin_prefetch(ahead + i);
  unsigned n = 0;
  for (; n < kWays && b + n < end; ++n) units[n] = Unread{&t, b + n, {}};
  return n;
}

// Calls use(unit, values) for each of the blocks, with the leading words of its entries.
template <class Isa, class Use>
inline Status each_block(const TableView& t, const BlockRange& range, Fault* fault, Use use) {
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(UINT64_MAX, fault);
  Unread units[kWays];
  for (uint64_t b = range.begin; b < range.end;) {
    const unsigned n = take_blocks(t, b, range.end, units);
    unsigned bad;
    Status status = load_codes<Isa>(units, n, work.codes, &bad, fault);
    for (unsigned i = 0; i < n && status == Status::ok; ++i, ++b) {
      status = expand_block<Isa>(units[i], work.codes[i], work.values, fault);
      if (status == Status::ok) status = use(units[i], work.values);
    }
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

template <class Isa>
Status decode_blocks(const TableView& t, const BlockRange& range, Decoded* to, Fault* fault) {
  const Workspace work(t.block_bytes);
  if (!work.fine()) return no_memory(UINT64_MAX, fault);
  Unread units[kWays];
  for (uint64_t b = range.begin; b < range.end;) {
    const unsigned n = take_blocks(t, b, range.end, units);
    unsigned bad;
    Status status = load_codes<Isa>(units, n, work.codes, &bad, fault);
    for (unsigned i = 0; i < n && status == Status::ok; ++i, ++b) {
      // Only the count of an opened block says what is written.
      if (units[i].head.count > to->room - to->written) return Status::ok;
      status = expand_rows<Isa>(units[i], work, work.codes[i], to->entries + to->written * Isa::W::kWords, fault);
      if (to->counts) to->counts[b - range.begin] = units[i].head.count;
      to->written += units[i].head.count;
      ++to->blocks;
    }
    if (__builtin_expect(status != Status::ok, 0)) return status;
  }
  return Status::ok;
}

}  // namespace
}  // namespace fpstore
