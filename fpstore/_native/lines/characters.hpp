// Characters in UTF-8, and digits.
#pragma once
#include <cstddef>
#include <cstdint>

namespace fpstore {

constexpr uint64_t kHighBits = 0x8080808080808080u;  // of eight bytes: of ASCII none is set

// The value of a byte as a digit, in either case; 0xFF if it is none.
constexpr uint8_t kNoDigit = 0xFF;
struct DigitTable {
  uint8_t values[256];
  constexpr DigitTable() : values() {
    for (uint8_t& value : values) value = kNoDigit;
    for (unsigned i = 0; i < 10; ++i) values['0' + i] = static_cast<uint8_t>(i);
    for (unsigned i = 0; i < 6; ++i)
      values['a' + i] = values['A' + i] = static_cast<uint8_t>(10 + i);
  }
};
constexpr DigitTable kDigits;

inline uint8_t digit_value(uint8_t c) { return kDigits.values[c]; }
inline bool is_digit(uint8_t c) { return static_cast<uint8_t>(c - '0') < 10; }

// White space of ASCII, as Python's str.isspace() has it.
inline bool is_ascii_space(uint8_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ');
}

// The bytes of the white space at p, of ASCII or of Unicode, as str.isspace() has it; 0 if another
// character is there. Reads nothing from end on.
inline size_t space_bytes(const uint8_t* p, const uint8_t* end) {
  if (*p < 0x80) return is_ascii_space(*p);
  if (*p != 0xC2 && (*p < 0xE1 || *p > 0xE3)) return 0;
  const auto left = static_cast<size_t>(end - p);
  if (*p == 0xC2) return left > 1 && (p[1] == 0x85 || p[1] == 0xA0) ? 2 : 0;
  if (left < 3) return 0;
  const uint32_t point = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  const bool is_space = (point >= 0x2000 && point <= 0x200A) || point == 0x1680 ||
                        point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
                        point == 0x3000;
  return is_space ? 3 : 0;
}

// Writes a code point, in up to four bytes. Returns where they end.
inline uint8_t* put_character(uint8_t* out, uint32_t point) {
  if (point < 0x80) {
    *out++ = static_cast<uint8_t>(point);
    return out;
  }
  unsigned shift = point < 0x800 ? 6 : point < 0x10000 ? 12 : 18;
  *out++ = static_cast<uint8_t>((shift == 6 ? 0xC0 : shift == 12 ? 0xE0 : 0xF0) | point >> shift);
  while (shift) *out++ = static_cast<uint8_t>(0x80 | (point >> (shift -= 6) & 0x3F));
  return out;
}

}  // namespace fpstore
