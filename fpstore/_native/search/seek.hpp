// Finding the place of a leading word inside an opened block.
#pragma once
#include "format/huffman_block.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// Finds the first entry >= target from the codes alone, reading a tail only where the first
// differing bit is that of the target itself (at most one per leading bit): while an entry e <
// target shares its first lcp bits with the target, the entries with h > lcp stay below it, one
// with h < lcp has passed it, and one with h = lcp must be looked at. False when every entry is
// smaller, which a block whose key is >= target cannot hold.
template <class Isa>
inline bool seek(const uint8_t* p, const HuffmanHead& head, const uint8_t* h, uint64_t target,
                 Cursor* c) {
  using W = typename Isa::W;
  uint64_t e = head.first;
  uint32_t at = head.tail_at;
  uint32_t i = 0;  // entry i + 1 has its code in h[i]
  const uint32_t n = head.count - 1;
  while (e < target) {
    const unsigned lcp = first_bit(e ^ target);
    const uint32_t j = Isa::find_at_most(h, i, n, lcp);
    if (j == n) return false;
    at += Isa::tail_bits(h + i, j - i);
    // The entries between keep the bits before lcp; e is only used for those.
    e = keep_before<W>(e, h[j]) | tail_value<W>(p, at, h[j]);
    at += tail_length<W>(h[j]);
    i = j + 1;
  }
  *c = Cursor{i, at, e};
  return true;
}

// One of up to kWays seeks side by side in blocks whose codes are decoded.
struct CodeSeek {
  const uint8_t* block;
  const HuffmanHead* head;
  const uint8_t* h;
  uint64_t target;
};

// A target that is sought in a block, which is number k of those opened together.
template <class OpenBlock>
struct Seek {
  const OpenBlock* unit;
  unsigned k;
  uint64_t target;
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
