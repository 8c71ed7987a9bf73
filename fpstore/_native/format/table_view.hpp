// A table in memory, and where its decoded entries go.
#pragma once
#include "format/huffman.hpp"
#include "format/permutation.hpp"

namespace fpstore {

// How the entries of a block are written.
enum class Codec : uint8_t { huffman, elias_fano };

// A parsed and mapped table, or a part of it: some blocks, whose numbers and the key before them
// say which. Blocks are followed by kOverread readable bytes (the key index and the directory).
struct TableView {
  const uint8_t* blocks;
  const uint64_t* keys;       // leading words
  const uint64_t* key_rests;  // the words behind them, of all keys
  const uint64_t* directory;
  uint64_t block_count;
  uint64_t fingerprint_count;
  uint64_t seed;
  uint64_t first_block = 0;
  uint64_t key_before =
      0;  // the leading word of the key before the first block; 0 for the first of a table
  uint32_t block_bytes;
  unsigned directory_bits;
  Codec codec;
  Permutation forward;
  Permutation inverse;
  DecodeTable code;
};

// Blocks from begin on, up to end.
struct BlockRange {
  uint64_t begin;
  uint64_t end;
};

// Where decoded entries go: the room, in entries, and the entry count of each block (counts may be
// null); and what was decoded.
struct Decoded {
  uint64_t* entries;  // rows
  uint64_t room;
  uint32_t* counts;
  uint64_t written = 0;
  uint64_t blocks = 0;
};

}  // namespace fpstore
