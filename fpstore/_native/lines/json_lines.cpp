#include "lines/json_lines.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "format/common.hpp"
#include "lines/characters.hpp"

namespace fpstore {

namespace {

constexpr uint64_t kOnes = 0x0101010101010101;
// Limits below those of Python, which depend on its version and settings.
constexpr unsigned kMaxDepth = 32;
constexpr size_t kMaxNumberBytes = 400, kMaxExponentDigits = 6;

inline uint64_t zero_bytes(uint64_t x) { return (x - kOnes) & ~x & kHighBits; }

// The high bits of bytes that end a run of plain characters in a string: a quote, a backslash or a
// control. Only the lowest bit is exact.
inline uint64_t special_bytes(uint64_t x) {
  return zero_bytes(x ^ kOnes * '"') | zero_bytes(x ^ kOnes * '\\') |
         ((x - kOnes * 0x20) & ~x & kHighBits);
}

inline bool is_continuation(uint8_t c) { return c >> 6 == 2; }

// The bytes of the character of several bytes at p; 0 if it is none. Reads nothing behind a byte of
// ASCII.
inline size_t character_bytes(const uint8_t* p) {
  const uint8_t lead = p[0], second = p[1];
  if (lead < 0xC2 || lead > 0xF4 || !is_continuation(second)) return 0;
  if (lead < 0xE0) return 2;
  if (!is_continuation(p[2])) return 0;
  if (lead < 0xF0)  // neither longer than needed nor a surrogate
    return (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ? 0 : 3;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
  return is_continuation(p[3]) ? 4 : 0;
}

// Whether a text that ends with a byte of ASCII is UTF-8.
bool is_utf8(const uint8_t* p, const uint8_t* end) {
  while (p < end) {
    if (end - p >= 16 && !((load64(p) | load64(p + 8)) & kHighBits)) {
      p += 16;
      continue;
    }
    if (*p < 0x80) {
      ++p;
      continue;
    }
    do {
      const size_t bytes = character_bytes(p);
      if (!bytes) return false;
      p += bytes;
    } while (*p >= 0x80);
  }
  return true;
}

// The value of four hexadecimal digits; negative if they are something else. Reads nothing behind
// another byte.
int hex_value(const uint8_t* p) {
  int value = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint8_t digit = digit_value(p[i]);
    if (digit == kNoDigit) return -1;
    value = value << 4 | digit;
  }
  return value;
}

inline bool is_surrogate(unsigned point) { return point >> 11 == 0xD800 >> 11; }

// What a byte behind a backslash stands for; 0 if it stands for nothing, or is followed by digits.
struct Escapes {
  uint8_t bytes[256] = {};
  constexpr Escapes() {
    const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    for (size_t i = 0; from[i]; ++i)
      bytes[static_cast<uint8_t>(from[i])] = static_cast<uint8_t>(to[i]);
  }
};
constexpr Escapes kEscapes;

// Reads lines one by one. A method returns where what it reads ends, or nullptr if that is not
// regular. No part of a line has a line break, so each stops at the last one at the latest.
class LineReader {
 public:
  LineReader(const uint8_t* end, Span<JsonField> fields) : end_(end), fields_(fields) {}

  const uint8_t* line(const uint8_t* p, size_t row) {
    for (JsonField& field : fields_) field.kinds[row] = JsonKind::missing;
    p = skip_blanks(p);
    if (*p++ != '{') return nullptr;
    p = skip_blanks(p);
    for (bool more = *p != '}'; more;) {
      if (*p++ != '"') return nullptr;
      JsonField* field;
      p = find(p, &field);
      if (p) p = colon(p);
      if (!p) return nullptr;
      p = field ? read(p, field, row) : skip_value(p, 1);
      if (!p) return nullptr;
      p = skip_blanks(p);
      more = *p == ',';
      if (more) p = skip_blanks(p + 1);
    }
    if (*p != '}') return nullptr;
    p = skip_blanks(p + 1);
    for (JsonField& field : fields_) field.ends[row] = field.size;
    return *p == '\n' ? p + 1 : nullptr;
  }

 private:
  // Finds the field that the name behind a quote is of, if it is read.
  const uint8_t* find(const uint8_t* start, JsonField** named) {
    const uint8_t* p = skip_plain(start);
    std::string_view name(reinterpret_cast<const char*>(start), static_cast<size_t>(p - start));
    if (*p == '"') {
      ++p;
    } else {  // it is escaped
      p = skip_string(p);
      if (!p) return nullptr;
      name_.resize(static_cast<size_t>(p - start) + kJsonSlack);
      uint8_t* end = name_.data();
      if (!unescape(start, &end)) return nullptr;
      name = {reinterpret_cast<const char*>(name_.data()), static_cast<size_t>(end - name_.data())};
    }
    *named = std::find_if(fields_.begin(), fields_.end(),
                          [&](const JsonField& field) { return field.name == name; });
    if (*named == fields_.end()) *named = nullptr;
    return p;
  }

  const uint8_t* read(const uint8_t* p, JsonField* field, size_t row) {
    JsonKind* const kind = field->kinds + row;
    if (*kind != JsonKind::missing) return nullptr;
    if (*p == '"') {
      *kind = JsonKind::string;
      uint8_t* out = field->data + field->size;
      p = unescape(p + 1, &out);
      field->size = static_cast<uint64_t>(out - field->data);
      return p;
    }
    const uint8_t* const value_end = skip_value(p, 1);
    if (!value_end) return nullptr;
    const size_t size = static_cast<size_t>(value_end - p);
    memcpy(field->data + field->size, p, size);
    field->size += size;
    *kind = JsonKind::other;
    return value_end;
  }

  static const uint8_t* skip_blanks(const uint8_t* p) {
    while (*p == ' ' || *p == '\t' || *p == '\r') ++p;
    return p;
  }

  static const uint8_t* colon(const uint8_t* p) {
    p = skip_blanks(p);
    return *p == ':' ? skip_blanks(p + 1) : nullptr;
  }

  // Eight bytes; zeros behind the end.
  uint64_t word_at(const uint8_t* p) const {
    if (end_ - p >= 8) return load64(p);
    uint64_t word = 0;
    memcpy(&word, p, static_cast<size_t>(end_ - p));
    return word;
  }

  // Returns the first quote, backslash or control.
  const uint8_t* skip_plain(const uint8_t* p) const {
    uint64_t special;
    while (!(special = special_bytes(word_at(p)))) p += 8;
    return p + (__builtin_ctzll(special) >> 3);
  }

  // Puts the string behind a quote.
  const uint8_t* unescape(const uint8_t* p, uint8_t** end) const {
    uint8_t* out = *end;
    for (;;) {
      const uint64_t word = word_at(p), special = special_bytes(word);
      store64(out, word);
      const size_t plain = special ? static_cast<size_t>(__builtin_ctzll(special) >> 3) : 8;
      p += plain;
      out += plain;
      if (!special) continue;
      *end = out;
      if (*p == '"') return p + 1;
      if (*p != '\\') return nullptr;
      if (const uint8_t byte = kEscapes.bytes[p[1]]) {
        *out++ = byte;
        p += 2;
        continue;
      }
      if (p[1] != 'u') return nullptr;
      int point = hex_value(p + 2);
      if (point < 0) return nullptr;
      p += 6;
      if (is_surrogate(static_cast<unsigned>(point))) {
        if (point >= 0xDC00 || p[0] != '\\' || p[1] != 'u') return nullptr;
        const int low = hex_value(p + 2);
        if (low < 0xDC00 || low > 0xDFFF) return nullptr;
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
      }
      out = put_character(out, static_cast<unsigned>(point));
    }
  }

  // Skips the string behind a quote.
  const uint8_t* skip_string(const uint8_t* p) const {
    for (;;) {
      p = skip_plain(p);
      if (*p == '"') return p + 1;
      if (*p != '\\') return nullptr;
      if (kEscapes.bytes[p[1]])
        p += 2;
      else if (p[1] == 'u' && hex_value(p + 2) >= 0)
        p += 6;
      else
        return nullptr;
    }
  }

  static const uint8_t* skip_digits(const uint8_t* p) {
    while (is_digit(*p)) ++p;
    return p;
  }

  static const uint8_t* skip_number(const uint8_t* p) {
    const uint8_t* const start = p;
    p += *p == '-';
    if (*p == 'I') return skip_word(p, "Infinity");
    if (!is_digit(*p)) return nullptr;
    p = *p == '0' ? p + 1 : skip_digits(p);
    if (*p == '.') {
      if (!is_digit(*++p)) return nullptr;
      p = skip_digits(p);
    }
    if (*p == 'e' || *p == 'E') {
      ++p;
      p += *p == '+' || *p == '-';
      const uint8_t* const exponent = p;
      p = skip_digits(p);
      if (p == exponent || static_cast<size_t>(p - exponent) > kMaxExponentDigits) return nullptr;
    }
    return static_cast<size_t>(p - start) > kMaxNumberBytes ? nullptr : p;
  }

  static const uint8_t* skip_word(const uint8_t* p, const char* word) {
    for (; *word; ++word, ++p)
      if (*p != static_cast<uint8_t>(*word)) return nullptr;
    return p;
  }

  const uint8_t* skip_value(const uint8_t* p, unsigned depth) const {
    switch (*p) {
      case '"':
        return skip_string(p + 1);
      case '{':
      case '[':
        return depth < kMaxDepth ? skip_items(p, depth + 1) : nullptr;
      case 't':
        return skip_word(p, "true");
      case 'f':
        return skip_word(p, "false");
      case 'n':
        return skip_word(p, "null");
      case 'N':
        return skip_word(p, "NaN");
      case 'I':
        return skip_word(p, "Infinity");
      default:
        return skip_number(p);
    }
  }

  // Skips an object or an array.
  const uint8_t* skip_items(const uint8_t* p, unsigned depth) const {
    const bool named = *p == '{';
    const uint8_t last = named ? '}' : ']';
    p = skip_blanks(p + 1);
    for (bool more = *p != last; more;) {
      if (named) {
        if (*p != '"') return nullptr;
        p = skip_string(p + 1);
        if (p) p = colon(p);
        if (!p) return nullptr;
      }
      p = skip_value(p, depth);
      if (!p) return nullptr;
      p = skip_blanks(p);
      more = *p == ',';
      if (more) p = skip_blanks(p + 1);
    }
    return *p == last ? p + 1 : nullptr;
  }

  const uint8_t* end_;
  Span<JsonField> fields_;
  std::vector<uint8_t> name_;  // that was escaped
};

}  // namespace

bool read_json_lines(Span<const uint8_t> lines, Span<JsonField> fields) {
  const uint8_t *p = lines.begin(), *const end = lines.end();
  if (p == end) return true;
  if (end[-1] != '\n' || !is_utf8(p, end)) return false;
  LineReader reader(end, fields);
  for (size_t row = 0; p < end; ++row) {
    p = reader.line(p, row);
    if (!p) return false;
  }
  return true;
}

}  // namespace fpstore
