// The header of a table file: the one place of the kernel that knows its bytes (docs/format.md,
// "Table file").
#pragma once
#include "format/table_view.hpp"

namespace fpstore {

struct TableHeader {
  uint32_t version = kFormatVersion;
  uint32_t flags = 0;
  uint16_t width = 64;
  uint16_t table = 0;        // place of this table in its design
  uint16_t table_count = 1;  // tables of the design
  uint16_t prefix_bits = 64;
  uint16_t flips = 0;
  uint16_t directory_bits = 0;
  uint32_t block_bytes = 512;
  uint64_t fingerprint_count = 0;
  uint64_t block_count = 0;
  uint64_t blocks_offset = kHeaderBytes;
  uint64_t keys_offset = 0;
  uint64_t directory_offset = 0;
  uint64_t file_bytes = 0;
  uint64_t set_digest = 0;  // sum of XXH64 over the unpermuted fingerprints, mod 2^64
  uint8_t permutation[kMaxWidth] =
      {};  // permutation[i] is the source bit of bit i, 0 = MSB; width entries
  uint8_t code_bits[kSymbols] = {};
};

constexpr uint32_t kEliasFanoFlag =
    1;  // the blocks are of that codec, and there is no Huffman code

inline Codec codec_of(const TableHeader& h) {
  return h.flags & kEliasFanoFlag ? Codec::elias_fano : Codec::huffman;
}
// Whether some h has a code: without one, a table is of the Elias-Fano codec.
bool has_code(const uint8_t code_bits[kSymbols]);

// Fills header from the first kHeaderBytes of a file of file_bytes bytes, and checks every field:
// after Status::ok all sections lie inside the file, do not overlap, and the permutation and the
// code are valid.
Status parse_header(const uint8_t* data, uint64_t file_bytes, TableHeader* header, Fault* fault);

// Writes kHeaderBytes, checksum included. Offsets and file_bytes are computed from the counts, the
// flags from the code.
void write_header(TableHeader* header, uint8_t* out);

// The seed that the block checksums of this table start from.
uint64_t block_seed(const TableHeader& header);

// Directory bits used by the writer for this many blocks: 8 to 15 keys an entry.
unsigned directory_bits_for(uint64_t block_count);

}  // namespace fpstore
