// A table in memory, and where its decoded entries go.
#pragma once
#include "format/huffman.hpp"
#include "format/permutation.hpp"

namespace fpstore {

// A parsed and mapped table. Blocks are followed by kOverread readable bytes (the key index and the directory).
struct TableView {
  const uint8_t* blocks;
  const uint64_t* keys;       // leading words
  const uint64_t* key_rests;  // the words behind them, of all keys
  const uint64_t* directory;
  uint64_t block_count;
  uint64_t fingerprint_count;
  uint64_t seed;
  uint32_t block_bytes;
  unsigned directory_bits;
  Permutation forward;
  Permutation inverse;
  DecodeTable code;
};

// Blocks from begin on, up to end.
struct BlockRange {
  uint64_t begin;
  uint64_t end;
};

// Where decoded entries go: room for so many, and the entry count of each block (counts may be null); and what was decoded.
struct Decoded {
  uint64_t* entries;  // rows
  uint64_t room;
  uint32_t* counts;
  uint64_t written = 0;
  uint64_t blocks = 0;
};

}  // namespace fpstore
