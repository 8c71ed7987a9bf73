// Where the kernels of a build write: encoded blocks, sorted keys.
#pragma once
#include "format/huffman.hpp"
#include "format/row.hpp"
#include "format/table_view.hpp"

namespace fpstore {

// Streaming encoder state; one partial block is carried from feed to feed.
struct Encoder {
  Codec codec;
  EncodeTable code;  // of Huffman blocks
  uint64_t seed;
  uint32_t block_bytes;
  uint64_t block_index;
  uint64_t previous_key;  // the leading word of the key of the block before
  uint64_t first;
  uint64_t last[kMaxWords];  // the row that was appended last, from the first on
  uint32_t count;            // entries in the open block; 0: none open
  uint32_t code_bits;
  uint32_t tail_bits;
  alignas(64) uint8_t codes[kMaxBlockBytes + 32];
  alignas(64) uint8_t tails[kMaxBlockBytes + 32];
  unsigned low_bits;  // of Elias-Fano blocks: with which the open block had room
  alignas(64) uint8_t rests[kMaxBlockBytes + 32];  // the words behind the leading ones
  uint64_t leads[kMaxEntries];  // the leading words, of Elias-Fano blocks; symbols, of whole
                                // Huffman blocks
};

// The room that the blocks of n more keys need, in blocks: an entry takes at most a code, a tail
// and the words behind the leading one, so a closed block holds many.
inline size_t most_blocks(const Encoder& encoder, unsigned words, size_t n) {
  const size_t most_bits = kMaxCodeBits + 63 + (words - 1) * 64;
  const size_t least = (encoder.block_bytes - kHuffmanHeaderBytes) * 8 / most_bits;
  return n / (least ? least : 1) + 2;
}

// Where encoded blocks go, with their keys and entry counts.
struct EncodedBlocks {
  uint8_t* blocks;
  uint64_t* keys;  // rows
  uint32_t* counts;
};

// Where keys are sorted: the result is in out, tmp has the same room.
struct SortBuffers {
  uint64_t* out;
  uint64_t* tmp;
};

// The output of a scatter of keys into parts by their leading bits. It has the keys of the parts
// [first, first + parts); other keys are skipped.
struct ScatterOutput {
  unsigned bits;  // leading bits, which are the number of a part
  size_t first, parts;
  const uint64_t* starts;  // for each part, the row of `out` to which its first key goes
  uint64_t* out;
  size_t room;       // rows of `out`
  uint64_t* memory;  // scratch memory: kScatterWords * (parts + 1) words
};
constexpr size_t kScatterWords = 9;

}  // namespace fpstore
