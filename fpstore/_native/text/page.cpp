#include "text/page.hpp"

#include <algorithm>
#include <cstring>

#include "lines/characters.hpp"

namespace fpstore {

namespace {

constexpr size_t kLongestName = 32;  // of an entity

bool is_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// The bytes of a page from a place on.
struct Rest {
  const uint8_t *p, *end;

  size_t size() const { return static_cast<size_t>(end - p); }
  // Whether it begins with a word of lower-case letters, in any case.
  bool begins_with(const char* word) const {
    const size_t n = strlen(word);
    return size() >= n && std::equal(p, p + n, word, [](uint8_t a, char b) {
             return (is_letter(a) ? a | 0x20 : a) == static_cast<uint8_t>(b);
           });
  }
  const uint8_t* find(uint8_t c) const {
    const void* const found = size() ? memchr(p, c, size()) : nullptr;
    return found ? static_cast<const uint8_t*>(found) : end;
  }
};

// Finds tags. A method returns where a tag ends; `p` if none begins there; null if rules of Unicode
// have to decide.
class Tags {
 public:
  explicit Tags(const uint8_t* end) : end_(end) {}

  const uint8_t* behind(const uint8_t* p) const {
    if (p + 1 == end_) return p;
    if (p[1] >= 0x80) return is_odd_letter(p[1]) ? nullptr : p;
    for (const char* const name : {"script", "style"}) {
      const Rest rest{p + 1, end_};
      if (!rest.begins_with(name)) continue;
      const uint8_t* const behind_name = p + 1 + strlen(name);
      if (behind_name == end_) return end_;
      if (*behind_name >= 0x80) return nullptr;
      const uint8_t c = *behind_name;
      if (!is_letter(c) && !is_digit(c) && c != '_') return behind_element(behind_name, name);
    }
    if (end_ - p >= 4 && !memcmp(p, "<!--", 4)) return behind_comment(p + 4);
    if (!is_letter(p[1]) && !memchr("/!?", p[1], 3)) return p;
    if ((p[1] | 0x20) == 's' && has_odd_letter(p + 1)) return nullptr;
    const uint8_t* const close = Rest{p + 1, end_}.find('>');
    return close == end_ ? end_ : close + 1;
  }

 private:
  // The first byte of a letter beyond ASCII that is one of ASCII in another case.
  static bool is_odd_letter(uint8_t c) { return c == 0xC4 || c == 0xC5 || c == 0xE2; }

  // Whether the name of a tag has such a letter.
  bool has_odd_letter(const uint8_t* p) const {
    for (; p < end_ && (is_letter(*p) || *p >= 0x80); ++p)
      if (is_odd_letter(*p)) return true;
    return false;
  }

  // Behind the end of a script or a style.
  const uint8_t* behind_element(const uint8_t* p, const char* name) const {
    for (;; ++p) {
      p = Rest{p, end_}.find('<');
      if (end_ - p < 2) return end_;
      if (p[1] != '/') continue;
      if (has_odd_letter(p + 2)) return nullptr;
      if (!Rest{p + 2, end_}.begins_with(name)) continue;
      const uint8_t* close = p + 2 + strlen(name);
      while (close < end_ && is_ascii_space(*close)) ++close;
      if (close == end_) continue;
      if (*close >= 0x80) return nullptr;
      if (*close == '>') return close + 1;
    }
  }

  const uint8_t* behind_comment(const uint8_t* p) const {
    for (;; ++p) {
      p = Rest{p, end_}.find('-');
      if (end_ - p < 3) return end_;
      if (p[1] == '-' && p[2] == '>') return p + 3;
    }
  }

  const uint8_t* end_;
};

// Resolves a number behind &#. The place behind it, p if there is none, and null for one of the
// numbers for which HTML has rules.
const uint8_t* put_number(const uint8_t* p, const uint8_t* end, std::vector<uint8_t>* out) {
  const uint8_t* digits = p + 2;
  const bool hexadecimal = digits < end && (*digits | 0x20) == 'x';
  digits += hexadecimal;
  uint32_t point = 0;
  const uint8_t* at = digits;
  const unsigned base = hexadecimal ? 16 : 10;
  for (; at < end && digit_value(*at) < base; ++at) {
    if (at - digits == 6) return nullptr;
    point = point * base + digit_value(*at);
  }
  if (at == digits) return p;
  const bool is_plain = (point >= 0x20 && point < 0x7F) || point == '\n' || point == '\t' ||
                        (point >= 0xA0 && point < 0xD800) || (point >= 0xE000 && point < 0xFDD0) ||
                        (point >= 0x10000 && point < 0x110000 && (point & 0xFFFE) != 0xFFFE);
  if (!is_plain) return nullptr;
  uint8_t bytes[4];
  out->insert(out->end(), bytes, put_character(bytes, point));
  return at + (at < end && *at == ';');
}

// Resolves the character reference at p. The place behind it, p if there is none, and null as
// put_number().
const uint8_t* put_reference(const uint8_t* p, const uint8_t* end, const Entities& entities,
                             std::vector<uint8_t>* out) {
  if (p + 1 < end && p[1] == '#') return put_number(p, end, out);
  size_t size = 0;
  const auto in_name = [](uint8_t c) { return c < 0x80 && !memchr("\t\n\f <&#;", c, 8); };
  const size_t most = std::min<size_t>(kLongestName, static_cast<size_t>(end - p - 1));
  while (size < most && in_name(p[1 + size])) ++size;
  std::string name(reinterpret_cast<const char*>(p + 1), size);
  const auto put = [&](const Entities::const_iterator& found) {
    out->insert(out->end(), found->second.begin(), found->second.end());
    return p + 1 + found->first.size();
  };
  if (p + 1 + size < end && p[1 + size] == ';')
    if (const auto found = entities.find(name + ';'); found != entities.end()) return put(found);
  for (; name.size() > 1; name.pop_back())
    if (const auto found = entities.find(name); found != entities.end()) return put(found);
  return p;
}

}  // namespace

bool may_be_page(Span<const uint8_t> beginning) {
  const uint8_t *p = beginning.data, *const end = p + beginning.size;
  for (; (p = Rest{p, end}.find('<')) < end; ++p) {
    const Rest name{p + 1, end};
    if (name.begins_with("html") || name.begins_with("!doctype")) return true;
  }
  return false;
}

bool plain_page(Span<const uint8_t> page, const Entities& entities, std::vector<uint8_t>* text) {
  text->clear();
  text->reserve(page.size);
  const uint8_t *p = page.data, *const end = p + page.size;
  const Tags tags(end);
  std::vector<uint8_t> stripped;  // references may stand on both sides of a tag
  stripped.reserve(page.size);
  while (p < end) {
    const uint8_t* const open = Rest{p, end}.find('<');
    stripped.insert(stripped.end(), p, open);
    if (open == end) break;
    const uint8_t* const behind = tags.behind(open);
    if (!behind) return false;
    stripped.push_back(behind == open ? '<' : ' ');
    p = behind == open ? open + 1 : behind;
  }
  const uint8_t *q = stripped.data(), *const stop = q + stripped.size();
  while (q < stop) {
    const uint8_t* const mark = Rest{q, stop}.find('&');
    text->insert(text->end(), q, mark);
    if (mark == stop) break;
    const uint8_t* const behind = put_reference(mark, stop, entities, text);
    if (!behind) return false;
    if (behind == mark) text->push_back('&');
    q = behind == mark ? mark + 1 : behind;
  }
  return true;
}

uint64_t visible_characters(Span<const uint8_t> text) {
  uint64_t characters = 0, spaces = 0;  // spaces: runs in front of something
  bool in_word = false;
  const uint8_t *p = text.data, *const end = p + text.size;
  while (p < end) {
    if (const size_t space = space_bytes(p, end)) {
      in_word = false;
      p += space;
      continue;
    }
    spaces += !in_word && characters;
    in_word = true;
    characters += (*p & 0xC0) != 0x80;
    ++p;
  }
  return characters + spaces;
}

}  // namespace fpstore
