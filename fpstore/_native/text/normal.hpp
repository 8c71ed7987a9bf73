// The normal form of a text, character by character: where it is that of its characters, one after
// the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lines/characters.hpp"

#include "text/text_kernels.hpp"

namespace fpstore {

constexpr uint32_t kCodePoints = 0x110000, kPagePoints = 256;
// In a text, before and behind a passage that is in its normal form but for the number of its
// spaces. UTF-8 has no such byte.
constexpr uint8_t kAsItIs = 0xFF;

// What a character becomes, in the highest three bits of its entry.
enum class CharKind : uint32_t {
  same,      // as it is; its combining class is in the lowest byte
  unit,      // as it is, and no other character belongs to its unit; its combining class too
  space,     // a separator
  removed,   // nothing
  replaced,  // bytes of the pool: their place in the lowest 23 bits, their number in the 6 above
  unknown,   // depends on its neighbours
  ignored,   // nothing, and its neighbours are neighbours of each other
};
constexpr unsigned kKindShift = 29, kFormShift = 23;
constexpr uint32_t kFormMask = 0x3F, kPlaceMask = (1u << kFormShift) - 1;

struct CharMap {
  const uint8_t* ascii;  // 128 bytes: what ASCII characters become; ' ' is a separator
  const int32_t* pages;  // of each kPagePoints code points: the number of their entries, in pages;
                         // -1 if they are not there
  const uint32_t* entries;
  const uint8_t* pool;
};

// What the map does not say of texts.
struct UnknownForms {
  void miss(uint32_t page) {
    if (pages.empty()) pages.resize(kCodePoints / kPagePoints);
    pages[page] = true;
  }

  std::vector<bool> pages;      // those that are missing; empty if none is
  std::vector<uint64_t> lines;  // where those begin and end whose form depends on neighbours of
                                // characters, ascending; whole texts too
};

// A text in its normal form: units are words with one space between two, or characters.
class NormalText {
 public:
  // Takes the UTF-8 bytes of a text from start to end, which may have surrogates, and any bytes
  // without harm. Notes what is unknown: if there is anything, what comes of the text is of no use.
  // A text of which nothing is left is unknown as a whole, unless a passage of it is as it is; so
  // is one with characters of missing pages.
  void set(const CharMap& map, const uint8_t* text, uint64_t start, uint64_t end,
           UnknownForms* unknown);

  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return size_; }

 private:
  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

}  // namespace fpstore
