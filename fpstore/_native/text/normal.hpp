// The normal form of a text, character by character: where it is that of its characters, one after the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fpstore {

constexpr uint32_t kCodePoints = 0x110000, kPagePoints = 256;
constexpr uint8_t kRemovedByte = 0xFF;  // in the table of ASCII characters: nothing stands for them

// What a character becomes, in the highest three bits of its entry.
enum class CharKind : uint32_t {
  same,      // as it is; its combining class is in the lowest byte
  unit,      // as it is, and no other character belongs to its unit; its combining class too
  space,     // a separator
  removed,   // nothing
  replaced,  // bytes of the pool: their place in the lowest 23 bits, their number in the 6 above
  unknown,   // depends on its neighbours
};
constexpr unsigned kKindShift = 29, kFormShift = 23;
constexpr uint32_t kFormMask = 0x3F, kPlaceMask = (1u << kFormShift) - 1;

struct CharMap {
  const uint8_t* ascii;   // 128 bytes: what ASCII characters become; ' ' is a separator
  const int32_t* pages;   // of each kPagePoints code points: the number of their entries, in pages; -1 if they are not there
  const uint32_t* entries;
  const uint8_t* pool;
};

// A text in its normal form: units are words with one space between two, or characters.
class NormalText {
 public:
  static constexpr size_t kPadding = 8;  // spaces behind it, which may be read

  // Takes the UTF-8 bytes from p to end, which may have surrogates, and any bytes without harm. False when the form is not known;
  // pages that are not there are noted, and what comes of the text then is of no use.
  bool set(const CharMap& map, const uint8_t* p, const uint8_t* end, std::vector<bool>* missing);

  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return size_; }

 private:
  void reserve(size_t more);
  void put_ascii(const uint8_t* ascii, const uint8_t* p, const uint8_t* end);
  void put(const uint8_t* p, size_t size);
  void put_space();

  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
  bool in_unit_ = false;  // the last byte is no separator
};

}  // namespace fpstore
