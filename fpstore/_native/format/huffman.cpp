#include "format/huffman.hpp"

namespace fpstore {

namespace {

// Symbols in canonical order (by length, then symbol), the number of codes of each length; false
// unless the Kraft sum is one.
bool canonical(const uint8_t lengths[kSymbols], uint8_t order[kSymbolPlaces],
               unsigned counts[kMaxCodeBits + 1]) {
  for (unsigned l = 0; l <= kMaxCodeBits; ++l) counts[l] = 0;
  uint32_t kraft = 0;
  for (unsigned s = 0; s < kSymbols; ++s) {
    if (lengths[s] > kMaxCodeBits) return false;
    ++counts[lengths[s]];
    if (lengths[s]) kraft += 1u << (kMaxCodeBits - lengths[s]);
  }
  if (kraft != 1u << kMaxCodeBits || kSymbols - counts[0] < 2) return false;
  unsigned place = 0;
  for (unsigned l = 1; l <= kMaxCodeBits; ++l)
    for (unsigned s = 0; s < kSymbols; ++s)
      if (lengths[s] == l) order[place++] = static_cast<uint8_t>(s);
  for (; place < kSymbolPlaces; ++place) order[place] = 0;
  return true;
}

}  // namespace

Status make_encode_table(const uint8_t lengths[kSymbols], EncodeTable* out) {
  uint8_t order[kSymbolPlaces];
  unsigned counts[kMaxCodeBits + 1];
  if (!canonical(lengths, order, counts)) return Status::bad_code;
  for (unsigned s = 0; s < kSymbols; ++s) {
    out->code[s] = 0;
    out->bits[s] = kNoCode;
  }
  uint32_t code = 0;
  unsigned place = 0;
  for (unsigned l = 1; l <= kMaxCodeBits; ++l, code <<= 1)
    for (unsigned i = 0; i < counts[l]; ++i, ++code, ++place) {
      out->code[order[place]] = static_cast<uint16_t>(code);
      out->bits[order[place]] = static_cast<uint16_t>(l);
    }
  return Status::ok;
}

Status make_decode_table(const uint8_t lengths[kSymbols], DecodeTable* out) {
  unsigned counts[kMaxCodeBits + 1];
  if (!canonical(lengths, out->symbols, counts)) return Status::bad_code;
  memcpy(out->bits, lengths, kSymbols);
  uint32_t code = 0;
  unsigned place = 0;
  for (unsigned l = 0; l <= kMaxCodeBits; ++l) {
    if (l) {
      code <<= 1;
      out->offset[l] = static_cast<int32_t>(place) - static_cast<int32_t>(code);
      code += counts[l];
      place += counts[l];
    } else {
      out->offset[l] = 0;
    }
    out->limit[l] = code << (kMaxCodeBits - l);
  }
  for (uint32_t x = 0; x < 1u << kLookupBits; ++x) {
    unsigned used = 0, n = 0;
    uint64_t entry = 0;
    while (n < kLookupSymbols && used < kLookupBits) {
      uint8_t symbol;
      const unsigned length = decode_one(*out, uint64_t{x} << (64 - kLookupBits + used), &symbol);
      if (used + length > kLookupBits) break;
      used += length;
      entry |= uint64_t{symbol} << (16 + 8 * n++);
    }
    out->lookup[x] = n ? entry | used | uint64_t{n} << 8 : 0;
  }
  return Status::ok;
}

}  // namespace fpstore
