#include "lines/digits.hpp"

#include <algorithm>
#include <cstring>

#include "lines/characters.hpp"

namespace fpstore {
namespace {

constexpr unsigned kMaxDecimals = 20;  // of 64 bits

const uint8_t* find(const uint8_t* from, const uint8_t* end, uint8_t byte) {
  return static_cast<const uint8_t*>(memchr(from, byte, static_cast<size_t>(end - from)));
}

}  // namespace

bool cut_lines(Span<const uint8_t> text, const std::string& separators, CutLines* out) {
  const uint8_t *const begin = text.data, *const text_end = begin + text.size;
  const auto place = [&](const uint8_t* p) { return static_cast<uint64_t>(p - begin); };
  for (const uint8_t *line = begin, *stop;
       line < text_end && (stop = find(line, text_end, '\n')) != nullptr; line = stop + 1) {
    const uint8_t* const end = stop - (stop > line && stop[-1] == '\r');
    if (end == line || *line == '#') continue;
    const uint8_t* separator = nullptr;
    for (const char byte : separators)
      for (const uint8_t* p = line; (p = find(p, end, static_cast<uint8_t>(byte))) != nullptr;
           ++p) {
        if (separator) return false;
        separator = p;
      }
    if (!out->starts.empty() && (separator != nullptr) == out->separators.empty()) return false;
    out->starts.push_back(place(line));
    if (separator) out->separators.push_back(place(separator));
    out->ends.push_back(place(end));
  }
  return true;
}

bool read_hexadecimal(const TextPlaces& places, unsigned digits, uint64_t* rows) {
  const unsigned words = digits > 16 ? digits / 16 : 1, in_word = digits / words;
  for (size_t i = 0; i < places.starts.size; ++i) {
    const uint8_t *p = places.text + places.starts[i], *const end = places.text + places.ends[i];
    if (end - p > 2 && p[0] == '0' && (p[1] | 32) == 'x')
      p += 2;
    else if (end - p != digits)
      return false;
    const uint64_t size = static_cast<uint64_t>(end - p);
    if (size > digits) return false;
    uint64_t* const row = rows + i * words;
    unsigned wrong = 0;
    // Missing digits in front are zeros.
    for (unsigned w = 0, left = digits; w < words; ++w) {
      uint64_t word = 0;
      for (unsigned d = 0; d < in_word; ++d, --left) {
        const uint8_t value = left > size ? 0 : digit_value(*p++);
        wrong |= value;
        word = word << 4 | (value & 15);
      }
      row[w] = word << (64 - 4 * in_word);
    }
    if (wrong > 15) return false;
  }
  return true;
}

bool read_decimal(const TextPlaces& places, unsigned bits, bool plain, uint64_t* numbers) {
  const uint64_t most = UINT64_MAX >> (64 - bits);
  for (size_t i = 0; i < places.starts.size; ++i) {
    const uint8_t *p = places.text + places.starts[i], *const end = places.text + places.ends[i];
    if (end <= p || end - p > kMaxDecimals || (plain && *p == '0' && end - p > 1)) return false;
    uint64_t number = 0;
    unsigned wrong = 0;
    for (const uint8_t* const safe = std::min(end, p + kMaxDecimals - 1); p < safe; ++p) {
      const uint8_t digit = digit_value(*p);
      wrong |= digit > 9;
      number = 10 * number + digit;
    }
    if (p < end) {
      const uint8_t digit = digit_value(*p);
      wrong |= digit > 9 || number > (UINT64_MAX - digit) / 10;
      number = 10 * number + digit;
    }
    if (wrong || number > most) return false;
    numbers[i] = number;
  }
  return true;
}

}  // namespace fpstore
