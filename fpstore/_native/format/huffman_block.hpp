// Blocks of the Huffman codec (docs/format.md, "Huffman block"): how they are read. Isa has the
// steps that an instruction set may have instructions for (isa/portable.hpp).
#pragma once
#include "format/workspace.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// What a block's header says, checked: entry count, where the tails start, and where the bits end:
// there stand the words behind the leading ones, of all entries.
struct HuffmanHead {
  uint64_t first;
  uint32_t count;
  uint32_t tail_at;  // bit position inside the block
  uint32_t end;      // byte position
};

// What a block of this size can hold: an entry behind the first takes at least one bit.
template <class W>
inline uint32_t most_huffman_entries(uint32_t block_bytes) {
  if constexpr (W::kWide)
    return (block_bytes - kHuffmanHeaderBytes) / W::kRestBytes;
  else
    return (block_bytes - kHuffmanHeaderBytes) * 8 + 1;
}

// Checks the checksum of block b and takes its lengths.
template <class Isa>
inline Status read_head(const TableView& t, uint64_t b, HuffmanHead* head, Fault* fault) {
  using W = typename Isa::W;
  FPSTORE_TRY(check_sum<Isa>(t, b, fault));
  // Read here and nowhere else: the file may have changed since the checksum was made, and may
  // change again. Whatever its other bytes become, what is decoded from them stays within these
  // lengths.
  const uint8_t* const p = block_at(t, b);
  const uint64_t lengths = read_once(load32(p + 4));
  head->first = read_once(load64(p + 8));
  head->count = lengths & 0xFFFF;
  head->tail_at = kHuffmanHeaderBytes * 8 + static_cast<uint32_t>(lengths >> 16);
  const uint32_t most = most_huffman_entries<W>(t.block_bytes);
  if (FPSTORE_UNLIKELY(head->count == 0 || head->count > most))
    return bad_count(b, most, head->count, fault);
  head->end = t.block_bytes - head->count * W::kRestBytes;
  // Behind the last bit of a narrow fingerprint there is nothing.
  const bool behind = W::kLast < 63 && (head->first & ~top_mask(W::kLast + 1)) != 0;
  if (FPSTORE_UNLIKELY(head->tail_at > head->end * 8 || behind))
    return bad_bits(b, head->end * 8, head->tail_at, fault);
  return Status::ok;
}

// Eight bytes from any bit on hold 57 bits: the set bit of an entry and a tail of 56. Only entries
// that differ before this bit from the one before have longer tails: few of a large set.
constexpr unsigned kShortTailFrom = 7;
template <class W>
constexpr bool kHasLongTails = W::kLast == 63;

// Bits of the tail of an entry with first differing bit h. One that differs behind its leading word
// only has none.
template <class W>
inline uint32_t tail_length(unsigned h) {
  if constexpr (W::kWide)
    return h < 64 ? 63 - h : 0;
  else
    return W::kLast - h;
}

// x shifted by the h of an entry.
template <class W>
inline uint64_t shifted(uint64_t x, unsigned h) {
  if constexpr (W::kWide)
    return x >> (h >> 1) >> ((h + 1) >> 1);  // h may be 64
  else
    return x >> h;
}

// The tail of an entry with first differing bit h, at bit position at: the bit at h set and the
// bits after it.
template <class W>
inline uint64_t tail_value(const uint8_t* p, uint32_t at, unsigned h) {
  // From one bit earlier, where the set bit will be.
  const uint8_t* q = p + ((at - 1) >> 3);
  uint64_t w = load64be(q) << ((at - 1) & 7);
  if (kHasLongTails<W> && FPSTORE_UNLIKELY(h < kShortTailFrom))
    w |= (static_cast<uint64_t>(q[8]) << ((at - 1) & 7)) >> 8;
  return shifted<W>(w | uint64_t{1} << 63, h) & top_mask(W::kLast + 1);
}

// The bits of x before position h.
template <class W>
inline uint64_t keep_before(uint64_t x, unsigned h) {
  return x & ~shifted<W>(~uint64_t{0}, h);
}

// The tails of a block: they start at bit position at of the block at p, of which limit bytes can
// be read.
struct Tails {
  const uint8_t* p;
  uint32_t limit;
  uint32_t at;
};

// A round takes four look-ups from one window. Its last one overlaps the load of the next window.
constexpr unsigned kRoundLookups = 4;
constexpr unsigned kRoundSymbols = kRoundLookups * kLookupSymbols;
constexpr unsigned kRoundBits = kRoundLookups * kLookupBits;

// Where decoding of a code stream stands. Up to a round past its end may be read and decoded:
// kOverread bytes are there.
struct CodeStream {
  const DecodeTable* code;
  const uint8_t* block;
  uint8_t* h;       // where the next symbol goes
  uint64_t window;  // the bits from at on: kRoundBits of them at least
  uint32_t at;
  uint32_t end;

  uint64_t load(uint32_t from) const { return load64be(block + (from >> 3)) << (from & 7); }
};
static_assert(Workspace::kBehind >= kRoundSymbols + 8, "a round stores eight symbols at a time");
static_assert(64 - 7 - kLookupBits >= kRoundBits, "a window must last for a round");
static_assert((kRoundBits + kMaxCodeBits) / 8 + 1 + 8 <= kOverread,
              "a round that starts inside the stream reads behind it");

// One round of each of N streams, whose look-ups wait for one another only within a stream.
template <unsigned N>
inline void decode_round(CodeStream* streams) {
  uint64_t last[N];
  for (unsigned k = 0; k < N; ++k) {
    CodeStream& c = streams[k];
    const uint64_t* lookup = c.code->lookup;
    uint64_t window = c.window;
    uint64_t sum =
        0;  // byte 0 the bits and byte 1 the symbols so far; what is above does not matter
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
    if (FPSTORE_UNLIKELY(last[k] == 0)) {
      CodeStream& c = streams[k];
      c.at += decode_one(*c.code, c.load(c.at), c.h++);
      c.window = c.load(c.at);
    }
}

// Decodes N blocks side by side, each to its end; false unless exactly the codes of its entries
// fill a stream and the tails their bits.
template <class Isa, unsigned N>
inline bool decode_codes(const Unread<HuffmanHead>* units, uint8_t* const* h) {
  CodeStream streams[N];
  for (unsigned k = 0; k < N; ++k) {
    CodeStream& c = streams[k];
    c = CodeStream{&units[k].table->code,
                   block_at(*units[k].table, units[k].block),
                   h[k],
                   0,
                   kHuffmanHeaderBytes * 8,
                   units[k].head.tail_at};
    c.window = c.load(c.at);
  }
  for (;;) {
    bool all = true;
    for (unsigned k = 0; k < N; ++k) all &= streams[k].at + kRoundBits <= streams[k].end;
    if (!all) break;
    decode_round<N>(streams);
  }
  // A stream that has ended takes its last round again until the others have, too.
  CodeStream last[N];
  for (unsigned k = 0; k < N; ++k) last[k] = streams[k];
  for (bool open = true; open;) {
    for (unsigned k = 0; k < N; ++k) {
      const bool ended = streams[k].at >= streams[k].end;
      last[k].at = streams[k].at = ended ? last[k].at : streams[k].at;
      last[k].h = streams[k].h = ended ? last[k].h : streams[k].h;
      last[k].window = streams[k].window = ended ? last[k].window : streams[k].window;
    }
    decode_round<N>(streams);
    open = false;
    for (unsigned k = 0; k < N; ++k) open |= streams[k].at < streams[k].end;
  }
  bool fine = true;
  for (unsigned k = 0; k < N; ++k) {
    // The last round may have gone past the end: of its symbols those that are still wanted must
    // reach just to it.
    const HuffmanHead& head = units[k].head;
    const uint32_t wanted = head.count - 1, before = static_cast<uint32_t>(last[k].h - h[k]),
                   n = static_cast<uint32_t>(streams[k].h - h[k]);
    fine &=
        before <= wanted && wanted <= n &&
        last[k].at + Isa::code_bits(*last[k].code, h[k] + before, wanted - before) == head.tail_at;
    fine &= head.tail_at + Isa::tail_bits(h[k], wanted) <= head.end * 8;
  }
  return fine;
}

template <class Isa>
inline bool decode_group(const Unread<HuffmanHead>* units, unsigned n, uint8_t* const* h) {
  switch (n) {
    case 1:
      return decode_codes<Isa, 1>(units, h);
    case 2:
      return decode_codes<Isa, 2>(units, h);
    case 3:
      return decode_codes<Isa, 3>(units, h);
    default:
      return decode_codes<Isa, 4>(units, h);
  }
}

// Opens n <= kWays blocks and decodes their codes into h; after ok the tails of all entries lie
// inside their blocks. Otherwise *bad is the first one at fault.
template <class Isa>
inline Status load_codes(Unread<HuffmanHead>* units, unsigned n, uint8_t* const* h, unsigned* bad,
                         Fault* fault) {
  for (unsigned k = 0; k < n; ++k) {
    *bad = k;
    FPSTORE_TRY(read_head<Isa>(*units[k].table, units[k].block, &units[k].head, fault));
  }
  if (FPSTORE_LIKELY(decode_group<Isa>(units, n, h))) return Status::ok;
  // Which one is not fine is found by decoding them again.
  for (*bad = 0; *bad + 1 < n && decode_codes<Isa, 1>(units + *bad, h); ++*bad) {
  }
  const HuffmanHead& head = units[*bad].head;
  return bad_bits(units[*bad].block, head.end * 8, head.tail_at, fault);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
