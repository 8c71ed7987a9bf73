// The canonical Huffman code over h in [0, 64]: from 65 code lengths to what an encoder and a
// decoder need.
#pragma once
#include "format/common.hpp"

namespace fpstore {

struct EncodeTable {
  uint16_t code[kSymbols];
  uint16_t bits[kSymbols];  // kNoCode: the symbol has none
};
constexpr uint16_t kNoCode = UINT16_MAX;  // longer than any block

// A look-up of kLookupBits bits yields every whole code they hold, six at most: byte 0 the bits
// they take, byte 1 the number of symbols, bytes 2..7 the symbols. A zero entry means that the code
// is longer than kLookupBits: decode it with the canonical limits below.
constexpr unsigned kLookupBits = 11;
constexpr unsigned kLookupSymbols = 6;

constexpr unsigned kSymbolPlaces =
    128;  // a power of two: a place that is computed from damaged bits is masked

struct DecodeTable {
  uint64_t lookup[1u << kLookupBits];
  uint8_t bits[kSymbols];
  // limit[l] is the first left-aligned 16-bit value that no code of at most l bits reaches;
  // offset[l] maps a code of l bits to its place in symbols.
  uint32_t limit[kMaxCodeBits + 1];
  int32_t offset[kMaxCodeBits + 1];
  uint8_t symbols[kSymbolPlaces];
};

// Checks the lengths (each at most 16, at least two symbols, Kraft sum exactly one) and fills the
// tables.
Status make_encode_table(const uint8_t lengths[kSymbols], EncodeTable* out);
Status make_decode_table(const uint8_t lengths[kSymbols], DecodeTable* out);

// One code from the top bits of window (left-aligned 64-bit); returns its length in bits and sets
// *symbol. Total.
static inline unsigned decode_one(const DecodeTable& table, uint64_t window, uint8_t* symbol) {
  const uint32_t top = static_cast<uint32_t>(window >> 48);
  unsigned length = 1;
  while (length < kMaxCodeBits && top >= table.limit[length]) ++length;
  const int32_t place = static_cast<int32_t>(top >> (kMaxCodeBits - length)) + table.offset[length];
  *symbol = table.symbols[place & (kSymbolPlaces - 1)];
  return length;
}

}  // namespace fpstore
