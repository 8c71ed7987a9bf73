// Charikar's simhash (STOC 2002) over features hashed with XXH64.
#pragma once
#include "format/common.hpp"

namespace fpstore {

struct SimhashOptions {
  bool words;       // a shingle is `length` successive words, else `length` successive code points
  unsigned length;  // at least 1
  bool distinct;    // each different shingle counts once, else each occurrence
  uint64_t seed;    // of XXH64
};

// fingerprints[i] of the UTF-8 bytes [offsets[i], offsets[i + 1]) of text, for i < n; the offsets ascend and lie in the text.
//
// Runs of spaces count as one space, and those at either end of a text as none: words are what spaces separate. A shingle is
// hashed as the bytes it spans, the spaces inside it too. A text shorter than one shingle is one feature, an empty one gives 0.
// Bit i of a fingerprint is set when it is set in more than half of the hashes. Works in memory of the longest text, and with
// distinct of its different shingles. False when memory runs out.
bool simhash_texts(const uint8_t* text, const uint64_t* offsets, uint64_t n, const SimhashOptions& options,
                   uint64_t* fingerprints);

// Bit i of the result is the sign of the sum, in the order given, of +weight over hashes with the bit set and -weight over the
// others; a zero sum gives 0.
uint64_t simhash_weighted(const uint64_t* hashes, const double* weights, uint64_t n);

}  // namespace fpstore
