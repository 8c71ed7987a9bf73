// Block encoder.
#pragma once
#include "build/output.hpp"
#include "format/xxh64.hpp"

namespace fpstore {
namespace {

// A bit writer, most significant bit first, without branches: whole bytes are stored as they fill, so fewer than eight bits are
// pending, at the top of word.
struct BitWriter {
  uint8_t* p;
  uint64_t word;
  unsigned filled;

  // Appends the low bits bits of value, 0 <= bits <= 56; the others must be zero. Writes 8 bytes at p.
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
    if (__builtin_expect(bits > 56, 0)) {
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

// Writes the open block to out: header, codes, tails moved up behind them, zero padding, checksum. Both streams are followed by
// zero bytes, so words can be moved; up to kOverread bytes behind the block are overwritten.
void close_block(Encoder* e, uint8_t* out, uint64_t* key, uint32_t* count) {
  store64(out + 8, e->first);
  store16(out + 16, static_cast<uint16_t>(e->count));
  store16(out + 18, static_cast<uint16_t>(e->code_bits));
  memcpy(out + kBlockHeaderBytes, e->codes, e->code_bits / 8 + 1);
  const unsigned shift = e->code_bits & 7;
  uint8_t* to = out + kBlockHeaderBytes + e->code_bits / 8;
  uint64_t carry = shift ? static_cast<uint64_t>(*to) << 56 : 0;
  const uint32_t tail_bytes = (e->tail_bits + 63) / 64 * 8;
  for (uint32_t i = 0; i < tail_bytes; i += 8) {
    const uint64_t w = load64be(e->tails + i);
    store64be(to + i, carry | w >> shift);
    carry = w << 1 << (63 - shift);
  }
  store64be(to + tail_bytes, carry);
  const uint32_t used = kBlockHeaderBytes + (e->code_bits + e->tail_bits + 7) / 8;
  memset(out + used, 0, e->block_bytes - used);
  const uint64_t seed = e->seed + e->last * xxh::kP1 + e->previous_key * xxh::kP2 + e->block_index * xxh::kP3;
  store64(out, xxh64(out + 8, e->block_bytes - 8, seed));
  *key = e->last;
  *count = e->count;
  e->previous_key = e->last;
  ++e->block_index;
  e->count = 0;
}

size_t encode_finish(Encoder* e, const EncodedBlocks& to) {
  if (e->count == 0) return 0;
  close_block(e, to.blocks, to.keys, to.counts);
  return 1;
}

enum class Append { all, full, refused };

// Appends keys[*i, n) to the open block as far as they fit; *i is the first that is not appended.
inline Append append_keys(Encoder* e, const uint64_t* keys, size_t n, size_t* i) {
  const uint32_t capacity = (e->block_bytes - kBlockHeaderBytes) * 8;
  BitWriter codes = resume(e->codes, e->code_bits);
  BitWriter tails = resume(e->tails, e->tail_bits);
  uint64_t last = e->last;
  uint32_t count = e->count, code_bits = e->code_bits, tail = e->tail_bits;
  Append end = Append::all;
  size_t at = *i;
  for (; at < n; ++at) {
    const uint64_t key = keys[at];
    if (__builtin_expect(key <= last, 0)) {
      end = Append::refused;
      break;
    }
    const unsigned h = first_bit(key ^ last);
    const unsigned bits = e->code.bits[h];
    if (code_bits + tail + bits + 63 - h > capacity) {
      end = bits == kNoCode ? Append::refused : Append::full;
      break;
    }
    codes.put(e->code.code[h], bits);
    tails.put_long(key & (~uint64_t{0} >> h >> 1), 63 - h);
    code_bits += bits;
    tail += 63 - h;
    last = key;
    ++count;
  }
  *i = at;
  if (end == Append::refused) return end;
  codes.flush();
  tails.flush();
  e->last = last;
  e->count = count;
  e->code_bits = code_bits;
  e->tail_bits = tail;
  return end;
}

size_t encode(Encoder* e, const uint64_t* keys, size_t n, const EncodedBlocks& to, size_t* bad) {
  size_t closed = 0;
  for (size_t i = 0; i < n;) {
    if (e->count == 0) {
      if (e->block_index && keys[i] <= e->previous_key) {
        *bad = i;
        return SIZE_MAX;
      }
      e->first = e->last = keys[i++];
      e->count = 1;
      e->code_bits = e->tail_bits = 0;
    }
    const Append end = append_keys(e, keys, n, &i);
    if (__builtin_expect(end == Append::refused, 0)) {
      *bad = i;
      return SIZE_MAX;
    }
    if (end == Append::full) {
      close_block(e, to.blocks + closed * e->block_bytes, to.keys + closed, to.counts + closed);
      ++closed;
    }
  }
  return closed;
}

}  // namespace
}  // namespace fpstore
