// Block encoder.
#pragma once
#include "build/elias_fano_encode.hpp"
#include "format/huffman_block.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// A bit writer, most significant bit first, without branches: whole bytes are stored as they fill,
// so fewer than eight bits are pending, at the top of word.
struct BitWriter {
  uint8_t* p;
  uint64_t word;
  unsigned filled;

  // Appends the low bits bits of value, 0 <= bits <= 56; the others must be zero. Writes 8 bytes at
  // p.
  void put(uint64_t value, unsigned bits) {
    filled += bits;
    word |= value << ((64 - filled) & 63);
    store64be(p, word);
    p += filled >> 3;
    word <<= filled & ~7u;
    filled &= 7;
  }
  // The same for up to 63 bits.
  void put_long(uint64_t value, unsigned bits) {
    if (FPSTORE_UNLIKELY(bits > 56)) {
      put(value >> 32, bits - 32);
      put(value & 0xFFFFFFFFu, 32);
    } else {
      put(value, bits);
    }
  }
  // Leaves at least eight zero bytes behind the last bit.
  void flush() {
    store64be(p, word);
    store64be(p + 8, 0);
  }
};

inline BitWriter resume(uint8_t* base, uint32_t bits) {
  BitWriter w;
  w.p = base + (bits >> 3);
  w.filled = bits & 7;
  w.word = w.filled ? static_cast<uint64_t>(*w.p) << 56 : 0;
  return w;
}

// Writes the header and the streams of the open block to out: codes, tails moved up behind them,
// zero padding. Both streams are followed by zero bytes, so words can be moved; up to kOverread
// bytes behind the block are overwritten.
template <class W>
inline void write_huffman(const Encoder& e, uint8_t* out) {
  store32(out, 0);
  store16(out + 4, static_cast<uint16_t>(e.count));
  store16(out + 6, static_cast<uint16_t>(e.code_bits));
  store64(out + 8, e.first);
  memcpy(out + kHuffmanHeaderBytes, e.codes, e.code_bits / 8 + 1);
  const unsigned shift = e.code_bits & 7;
  uint8_t* to = out + kHuffmanHeaderBytes + e.code_bits / 8;
  uint64_t carry = shift ? static_cast<uint64_t>(*to) << 56 : 0;
  const uint32_t tail_bytes = (e.tail_bits + 63) / 64 * 8;
  for (uint32_t i = 0; i < tail_bytes; i += 8) {
    const uint64_t w = load64be(e.tails + i);
    store64be(to + i, carry | w >> shift);
    carry = w << 1 << (63 - shift);
  }
  store64be(to + tail_bytes, carry);
  const uint32_t used = kHuffmanHeaderBytes + (e.code_bits + e.tail_bits + 7) / 8;
  memset(out + used, 0, e.block_bytes - used);
}

// Puts the checksum into a block that is written to out but for it, and notes its key and count.
template <class W>
void seal_block(Encoder* e, uint8_t* out, uint64_t* key, uint32_t* count) {
  const uint64_t seed =
      e->seed + e->last[0] * xxh::kP1 + e->previous_key * xxh::kP2 + e->block_index * xxh::kP3;
  store32(out, block_sum(out, e->block_bytes, seed));
  memcpy(key, e->last, W::kWords * sizeof *key);
  *count = e->count;
  e->previous_key = e->last[0];
  ++e->block_index;
  e->count = 0;
}

// Writes the open block to out, and its key and count.
template <class W>
void close_block(Encoder* e, uint8_t* out, uint64_t* key, uint32_t* count) {
  if (e->codec == Codec::huffman)
    write_huffman<W>(*e, out);
  else
    write_elias_fano<W>(*e, out);
  const uint32_t rest_bytes = e->count * W::kRestBytes;
  memcpy(out + e->block_bytes - rest_bytes, e->rests, rest_bytes);
  seal_block<W>(e, out, key, count);
}

template <class W>
size_t encode_finish(Encoder* e, const EncodedBlocks& to) {
  if (e->count == 0) return 0;
  close_block<W>(e, to.blocks, to.keys, to.counts);
  return 1;
}

// The lowest n bits, 0 <= n <= 63.
inline uint64_t tail_mask(unsigned n) { return (uint64_t{1} << n) - 1; }

enum class Append { all, full, refused };

// The symbol of a key that follows another.
template <class Row>
inline unsigned symbol_between(const Row& last, const Row& key) {
  const uint64_t difference = leading_word(last) ^ leading_word(key);
  return sizeof(Row) > 8 && !difference ? 64 : first_bit(difference);
}

// Notes a key as the last one of the open block, which has count entries before it.
template <class W>
inline void note_key(Encoder* e, const typename W::Row& key, uint32_t count) {
  if constexpr (W::kWide)
    for (unsigned word = 0; word < W::kRestWords; ++word)
      store64(e->rests + count * W::kRestBytes + 8 * word, key.word[1 + word]);
  (void)e;
  (void)key;
  (void)count;
}

// Appends keys[*i, n) to the open block as far as they fit; *i is the first that is not appended.
template <class W>
inline Append append_keys(Encoder* e, const typename W::Row* keys, size_t n, size_t* i) {
  using Row = typename W::Row;
  const uint32_t capacity = (e->block_bytes - kHuffmanHeaderBytes) * 8;
  BitWriter codes = resume(e->codes, e->code_bits);
  BitWriter tails = resume(e->tails, e->tail_bits);
  Row last = *rows<Row>(e->last);
  uint32_t count = e->count, code_bits = e->code_bits, tail = e->tail_bits;
  Append end = Append::all;
  size_t at = *i;
  for (; at < n; ++at) {
    const Row key = keys[at];
    if (FPSTORE_UNLIKELY(key <= last)) {
      end = Append::refused;
      break;
    }
    const unsigned h = symbol_between(last, key);
    const unsigned bits = e->code.bits[h], tail_bits = tail_length<W>(h);
    if (code_bits + tail + bits + tail_bits + (count + 1) * W::kRestBytes * 8 > capacity) {
      end = bits == kNoCode ? Append::refused : Append::full;
      break;
    }
    codes.put(e->code.code[h], bits);
    tails.put_long(leading_word(key) >> (63 - W::kLast) & tail_mask(tail_bits), tail_bits);
    note_key<W>(e, key, count);
    code_bits += bits;
    tail += tail_bits;
    last = key;
    ++count;
  }
  *i = at;
  if (end == Append::refused) return end;
  codes.flush();
  tails.flush();
  *rows<Row>(e->last) = last;
  e->count = count;
  e->code_bits = code_bits;
  e->tail_bits = tail;
  return end;
}

// The same for the open block of an Elias-Fano table.
template <class W>
inline Append append_leads(Encoder* e, const typename W::Row* keys, size_t n, size_t* i) {
  using Row = typename W::Row;
  Row last = *rows<Row>(e->last);
  Append end = Append::all;
  size_t at = *i;
  for (; at < n; ++at) {
    const Row key = keys[at];
    if (FPSTORE_UNLIKELY(key <= last)) {
      end = Append::refused;
      break;
    }
    if (!has_room<W>(e, leading_word(key), e->count)) {
      end = Append::full;
      break;
    }
    note_key<W>(e, key, e->count);
    e->leads[e->count++] = leading_word(key);
    last = key;
  }
  *i = at;
  *rows<Row>(e->last) = last;
  return end;
}

// Whole blocks of narrow fingerprints: where a block ends is found first, so each stream is written
// to its place.
constexpr uint64_t kBothBits = (uint64_t{1} << 32) + 1;  // of a code: they count for both sums

// For each symbol the bits of an entry, and above 32 bits those of its code.
template <class W>
inline void entry_sizes(const EncodeTable& code, uint64_t sizes[kSymbols]) {
  for (unsigned h = 0; h < kSymbols; ++h)
    sizes[h] = h > W::kLast ? kNoCode : code.bits[h] * kBothBits + tail_length<W>(h);
}

// Appends the codes of count symbols, four at a time: together they have at most 64 bits, and few
// of them.
inline void put_codes(BitWriter* to, const EncodeTable& code, const uint8_t* h, uint32_t count) {
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const unsigned b1 = code.bits[h[i + 1]], b2 = code.bits[h[i + 2]], b3 = code.bits[h[i + 3]],
                   low = b2 + b3;
    const uint64_t first = static_cast<uint64_t>(code.code[h[i]]) << b1 | code.code[h[i + 1]];
    const uint64_t second = static_cast<uint64_t>(code.code[h[i + 2]]) << b3 | code.code[h[i + 3]];
    if (FPSTORE_UNLIKELY(code.bits[h[i]] + b1 + low > 56)) {
      to->put(first, code.bits[h[i]] + b1);
      to->put(second, low);
    } else {
      to->put(first << low | second, code.bits[h[i]] + b1 + low);
    }
  }
  for (; i < count; ++i) to->put(code.code[h[i]], code.bits[h[i]]);
}

// Writes the header and the streams of a block of count + 1 keys; used is the sum of the sizes of
// those behind the first.
template <class W>
inline void write_block(const Encoder& e, const uint64_t* keys, const uint8_t* h, uint32_t count,
                        uint64_t used, uint8_t* out) {
  const uint32_t code_bits = static_cast<uint32_t>(used >> 32), bits = static_cast<uint32_t>(used);
  store32(out, 0);
  store16(out + 4, static_cast<uint16_t>(count + 1));
  store16(out + 6, static_cast<uint16_t>(code_bits));
  store64(out + 8, keys[0]);
  BitWriter to{out + kHuffmanHeaderBytes, 0, 0};
  put_codes(&to, e.code, h, count);
  for (uint32_t i = 0; i < count; ++i) {
    const unsigned length = tail_length<W>(h[i]);
    to.put_long(keys[i + 1] >> (63 - W::kLast) & tail_mask(length), length);
  }
  to.flush();
  const uint32_t bytes = kHuffmanHeaderBytes + (bits + 7) / 8;
  memset(out + bytes, 0, e.block_bytes - bytes);
}

// Writes blocks of keys[*i, n) as long as one is full before the end; *i is the first key behind
// them. False at a key that is out of order or has no code.
template <class W>
inline bool encode_whole(Encoder* e, const uint64_t* keys, size_t n, size_t* i,
                         const EncodedBlocks& to, size_t* closed) {
  const uint32_t capacity = (e->block_bytes - kHuffmanHeaderBytes) * 8;
  uint64_t sizes[kSymbols];
  entry_sizes<W>(e->code, sizes);
  uint8_t* const symbols = reinterpret_cast<uint8_t*>(e->leads);
  while (*i < n) {
    const uint64_t* const block = keys + *i;
    const size_t most = n - *i;
    if (e->block_index && block[0] <= e->last[0]) return false;
    uint64_t used = 0;
    size_t at = 1;
    for (; at < most; ++at) {
      if (FPSTORE_UNLIKELY(block[at] <= block[at - 1])) {
        *i += at;
        return false;
      }
      const unsigned h = first_bit(block[at] ^ block[at - 1]);
      if (static_cast<uint32_t>(used + sizes[h]) > capacity) break;
      used += sizes[h];
      symbols[at - 1] = static_cast<uint8_t>(h);
    }
    if (at == most) return true;
    if (e->code.bits[first_bit(block[at] ^ block[at - 1])] == kNoCode) {
      *i += at;
      return false;
    }
    write_block<W>(*e, block, symbols, static_cast<uint32_t>(at - 1), used,
                   to.blocks + *closed * e->block_bytes);
    e->count = static_cast<uint32_t>(at);
    e->last[0] = block[at - 1];
    seal_block<W>(e, to.blocks + *closed * e->block_bytes, to.keys + *closed, to.counts + *closed);
    ++*closed;
    *i += at;
  }
  return true;
}

template <class W>
size_t encode(Encoder* e, const uint64_t* words, size_t n, const EncodedBlocks& to, size_t* bad) {
  using Row = typename W::Row;
  const Row* const keys = rows<Row>(words);
  size_t closed = 0;
  for (size_t i = 0; i < n;) {
    if constexpr (!W::kWide)
      if (e->count == 0 && e->codec == Codec::huffman) {
        if (FPSTORE_UNLIKELY(!encode_whole<W>(e, words, n, &i, to, &closed))) {
          *bad = i;
          return SIZE_MAX;
        }
        if (i == n) break;
      }
    if (e->count == 0) {
      if (e->block_index && keys[i] <= *rows<Row>(e->last)) {
        *bad = i;
        return SIZE_MAX;
      }
      e->first = e->leads[0] = leading_word(keys[i]);
      *rows<Row>(e->last) = keys[i];
      note_key<W>(e, keys[i++], 0);
      e->count = 1;
      e->code_bits = e->tail_bits = 0;
    }
    const Append end = e->codec == Codec::huffman ? append_keys<W>(e, keys, n, &i)
                                                  : append_leads<W>(e, keys, n, &i);
    if (FPSTORE_UNLIKELY(end == Append::refused)) {
      *bad = i;
      return SIZE_MAX;
    }
    if (end == Append::full) {
      close_block<W>(e, to.blocks + closed * e->block_bytes, to.keys + closed * W::kWords,
                     to.counts + closed);
      ++closed;
    }
  }
  return closed;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
