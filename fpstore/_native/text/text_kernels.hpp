// The hot loops of the fingerprints of texts, as each instruction set has them.
#pragma once
#include "text/minima_request.hpp"

namespace fpstore {

// Bytes behind a text in its normal form, all of them spaces, which the loops may read.
constexpr size_t kTextPadding = 64;
constexpr size_t kStartsBehind = 64;  // of starts, for which there is room behind those in use

// A search for the starts of units among the bytes of a text from `at` to `end`. A byte behind a
// space starts a word; a byte that continues no character starts one. The search goes one byte
// further than the gap behind the last unit, so that each unit ends where another start is.
struct UnitSearch {
  const uint8_t* text;
  size_t at;
  size_t end;
};

// Shingle i is from starts[i] to starts[i + length], but for a gap between two units.
struct Shingles {
  const uint8_t* text;
  const uint64_t* starts;
  size_t length;
  size_t gap;
};

// ASCII characters that become others, by a table of 128 bytes: ' ' is a separator, of which one
// stays behind a unit. Nothing stands for kIgnoredByte and kRemovedByte.
struct AsciiRun {
  const uint8_t* table;
  const uint8_t* text;
  size_t size;
};
// An ignored character is skipped: the ones before and behind it are neighbours. A removed one goes
// from the normal form.
constexpr uint8_t kIgnoredByte = 0xFE, kRemovedByte = 0xFF;

struct TextKernels {
  // Puts what a run of ASCII characters becomes, and returns how many bytes; kTextPadding more may
  // be written. in_unit is 1 behind a byte that is no separator, else 0.
  size_t (*put_ascii)(const AsciiRun& run, unsigned* in_unit, uint8_t* out);
  // Appends the starts of units, at most so many, and returns how many. The search moves on; it is
  // at its end, or there is no room for those of kStartsBehind more bytes.
  size_t (*word_starts)(UnitSearch* search, uint64_t* starts, size_t room);
  size_t (*char_starts)(UnitSearch* search, uint64_t* starts, size_t room);
  // The XXH64 of n shingles.
  void (*hash_shingles)(const Shingles& shingles, size_t n, uint64_t seed, uint64_t* hashes);
  // Adds the bits of n words, at most kMaxCounted, to 64 counts: plane i holds bit i of each.
  void (*count_bits)(const uint64_t* words, size_t n, uint64_t* planes);
  LowerMinima lower_minima;
};
constexpr size_t kMaxCounted = 1024;

}  // namespace fpstore
