// What the headers of tables, of column tables and of filters have in common.
#pragma once
#include "format/row.hpp"

namespace fpstore {

constexpr unsigned kPermutationAt = 128;  // kMaxWidth bytes, of which those behind the width are zero
constexpr unsigned kChecksumAt = kHeaderBytes - 8;

inline Status fail(Fault* fault, Status status, uint64_t expected, uint64_t got) {
  fault->status = status;
  fault->expected = expected;
  fault->got = got;
  return status;
}

// Whether the first bits entries are a permutation, and those behind them zero.
bool is_permutation(const uint8_t permutation[kMaxWidth], unsigned bits);

// Copies the header of a mapped file, which may change at any time, to p, which is checked and taken apart. Compares the magic bytes,
// the version and the checksum.
Status copy_header(const uint8_t* data, uint64_t file_bytes, const uint8_t magic[8], uint8_t* p, Fault* fault);

}  // namespace fpstore
