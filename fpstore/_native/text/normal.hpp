// Normal forms of texts, character by character, where those of a text are the normal forms of its characters one after the other.
#pragma once
#include <cstdint>
#include <vector>

namespace fpstore {

constexpr uint32_t kCodePoints = 0x110000, kPagePoints = 256;

// What characters become. An entry has its kind in the highest two bits: as it is; other bytes, whose place in the pool is in the
// lowest 24 bits and whose number is in those between; or unknown without its neighbours.
struct CharMap {
  const int32_t* pages;  // of each kPagePoints code points: the number of their entries, in pages; -1 if they are not there
  const uint32_t* entries;
  const uint8_t* pool;
};
enum class CharKind : uint32_t { same, replaced, unknown };

struct Normalized {
  std::vector<uint8_t> text;
  std::vector<uint64_t> ends;     // of each text
  std::vector<uint64_t> unknown;  // texts whose normal form is not known: they are empty here
  std::vector<uint32_t> missing;  // pages that some text needs: then all else is of no use
};

// The normal forms of the UTF-8 texts [offsets[i], offsets[i + 1]), i < n, which may have surrogates. ASCII characters are as they are.
Normalized normalize(const CharMap& map, const uint8_t* text, const uint64_t* offsets, uint64_t n);

}  // namespace fpstore
