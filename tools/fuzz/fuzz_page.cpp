// Pages of HTML: whatever the bytes, nothing outside of them is read; their plain texts are what
// the patterns of hashing/plain_pages.py and html.unescape make, character by character. The kernel
// leaves a page to others only where letters beyond ASCII touch the name of a tag, or for a number
// that has rules of its own.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "input.hpp"
#include "text/page.hpp"

using namespace fpstore;

namespace {

using Characters = std::u32string;

const Characters kSpaces =
    U"\t\n\v\f\r\x1C\x1D\x1E\x1F \x85\xA0\u1680\u2000\u2001\u2002\u2003\u2004"
    U"\u2005\u2006\u2007\u2008\u2009\u200A\u2028\u2029\u202F\u205F\u3000";
const Characters kNoLetters = U"\u200B\u2013\u2027\u3001\U0001F600";  // beyond ASCII
const std::map<std::string, Characters> kEntities = {{"amp", U"&"},
                                                     {"amp;", U"&"},
                                                     {"lt", U"<"},
                                                     {"not", U"\xAC"},
                                                     {"notin;", U"\u2209\u0338"},
                                                     {"b;", U"\U0001D41B"},
                                                     {std::string(31, 'w'), U"31"},
                                                     {std::string(32, 'w') + ';', U"32"},
                                                     {std::string(33, 'w'), U"33"}};

// The parts of a text between bars.
std::vector<Characters> parts_of(const Characters& text) {
  std::vector<Characters> out(1);
  for (const char32_t c : text)
    if (c == '|')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

// Parts of tags and of references.
const std::vector<Characters> kPieces = parts_of(
    U"<|>|/|!|?|-|&|#|;|_|a|s|X|9|\xE9|<script|<SCRIPT>|</script|</ScripT>|<style|<StyLe>|</style>"
    U"|</STYLE \n\x1C>|<p>|<Z|<!--|-->|--|<html|<HtMl|<htm|<!DocType|<script>x</script>y"
    U"|<style>x</style>y|&amp;|&amp|&lt|&not|&notin;|&noti|&b;|&#|&#x|&#X|&#9;|&#65|&#x1f600;|&#32;"
    U"|&#126;|&#160;|&#xD7FF;|&#xE000;|&#xFDCF;|&#x10000;|&#x1FFFD;|&#x10FFFD|<\x01"
    U"doctype");
// Those for which the kernel may leave a page to others: numbers with rules, letters beyond ASCII.
const std::vector<Characters> kOddPieces = parts_of(
    U"&#31;|&#127;|&#159;|&#xD800;|&#xDfff;|&#xFDD0;|&#xFFFF;|&#x1FFFE;|&#x10FFFF;|&#x110000;"
    U"|&#0000065;|<script\xE9|<style\u2013|<scr\u0130pt|<SCR\u0131PT|<\u017Ftyle|</scr\u0130pt>"
    U"|</script\u3000>|<\u212A|</s\u2013");

bool has(const Characters& all, char32_t c) { return all.find(c) != Characters::npos; }

// The letter of ASCII that str.lower() makes of a character, itself if none.
char32_t lower(char32_t c) {
  if (c == 0x130) return 'i';
  if (c == 0x212A) return 'k';
  return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

// The same for letters that a pattern spells out: more are alike.
char32_t alike(char32_t c) { return c == 0x17F ? 's' : c == 0x131 ? 'i' : lower(c); }

bool is_letter(char32_t c) { return c < 0x80 && lower(c) >= 'a' && lower(c) <= 'z'; }

bool is_word(char32_t c) {
  if (c >= 0x80) return !has(kSpaces, c) && !has(kNoLetters, c);
  return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
}

template <class Fold>
Characters each(Characters text, Fold fold) {
  for (char32_t& c : text) c = fold(c);
  return text;
}

std::string utf8(const Characters& text) {
  std::string out;
  for (const char32_t c : text) {
    const unsigned later = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out += static_cast<char>(later ? (0xF0 << (3 - later) & 0xFF) | c >> 6 * later : c);
    for (unsigned i = later; i-- > 0;) out += static_cast<char>(0x80 | (c >> 6 * i & 0x3F));
  }
  return out;
}

class SlowPage {
 public:
  explicit SlowPage(const Characters& page) : text_(page) {
    strip();
    resolve();
  }
  const Characters& text() const { return text_; }
  bool may_be_left() const { return may_be_left_; }

 private:
  // A null behind the end.
  char32_t at(size_t i) const { return i < text_.size() ? text_[i] : 0; }
  Characters part(size_t i, size_t size) const {
    return i < text_.size() ? text_.substr(i, size) : Characters();
  }
  size_t behind(const Characters& mark, size_t from) const {
    const size_t found = text_.find(mark, from);
    return found == Characters::npos ? text_.size() : found + mark.size();
  }

  // Notes whether characters beyond ASCII touch the name at a place, or spaces behind it.
  void look_at_name(size_t i) {
    while (is_letter(at(i))) ++i;
    while (at(i) < 0x80 && has(kSpaces, at(i))) ++i;
    may_be_left_ |= at(i) >= 0x80;
  }

  // The end of the tag at a place, the place itself if there is none.
  size_t tag_end(size_t i) {
    look_at_name(i + 1);
    for (const char32_t* const name : {U"script", U"style"}) {
      const size_t size = Characters(name).size(), behind_name = i + 1 + size;
      if (each(part(i + 1, size), alike) != name || is_word(at(behind_name))) continue;
      const Characters end = each(U"</" + part(i + 1, size), lower);
      for (size_t p = behind_name; p < text_.size(); ++p) {
        if (part(p, 2) == U"</") look_at_name(p + 2);
        if (each(part(p, end.size()), lower) != end) continue;
        size_t close = p + end.size();
        while (close < text_.size() && has(kSpaces, text_[close])) ++close;
        if (at(close) == '>') return close + 1;
      }
      return text_.size();
    }
    if (part(i, 4) == U"<!--") return behind(U"-->", i + 4);
    const char32_t first = at(i + 1);
    return is_letter(alike(first)) || (first && has(U"/!?", first)) ? behind(U">", i) : i;
  }

  void strip() {
    Characters out;
    for (size_t i = 0; i < text_.size();) {
      const size_t end = text_[i] == '<' ? tag_end(i) : i;
      out += end > i ? U' ' : text_[i];
      i = std::max(end, i + 1);
    }
    text_ = out;
  }

  // Appends what the number behind &# is. The end of it, i if none is there.
  size_t number_end(size_t i, Characters* out) {
    const bool hexadecimal = lower(at(i + 2)) == 'x';
    const Characters digits = hexadecimal ? U"0123456789abcdef" : U"0123456789";
    const size_t first = i + 2 + hexadecimal;
    size_t p = first;
    char32_t point = 0;
    for (; at(p) < 0x80 && has(digits, lower(at(p))) && at(p); ++p)
      if (point <= 0x10FFFF)
        point = static_cast<char32_t>(point * digits.size() + digits.find(lower(at(p))));
    if (p == first) return i;
    const bool has_rule = (point < ' ' && point != '\t' && point != '\n') ||
                          (point >= 0x7F && point <= 0x9F) || point >> 11 == 0x1B ||
                          (point >= 0xFDD0 && point <= 0xFFFF) || (point & 0xFFFE) == 0xFFFE ||
                          point > 0x10FFFF;
    may_be_left_ |= has_rule || p - first > 6;
    *out += has_rule ? 0x1FFFFF : point;  // that is nothing which the kernel writes
    return p + (at(p) == ';');
  }

  // The same for a name behind &.
  size_t name_end(size_t i, Characters* out) const {
    size_t size = 0;
    while (size < 32 && i + 1 + size < text_.size() && !has(U"\t\n\f <&#;", text_[i + 1 + size]))
      ++size;
    for (size += at(i + 1 + size) == ';'; size > 1; --size) {
      const auto found = kEntities.find(utf8(part(i + 1, size)));
      if (found == kEntities.end()) continue;
      *out += found->second;
      return i + 1 + size;
    }
    return i;
  }

  void resolve() {
    Characters out;
    for (size_t i = 0; i < text_.size();) {
      size_t end = i;
      if (text_[i] == '&') end = at(i + 1) == '#' ? number_end(i, &out) : name_end(i, &out);
      if (end == i) out += text_[end++];
      i = end;
    }
    text_ = out;
  }

  Characters text_;
  bool may_be_left_ = false;
};

uint64_t slow_visible(const Characters& text) {
  uint64_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (has(kSpaces, text[i])) continue;
    characters += 1 + (characters && has(kSpaces, text[i - 1]));
  }
  return characters;
}

bool slow_may_be_page(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text.find("<html") != std::string::npos || text.find("<!doctype") != std::string::npos;
}

const Entities& entities() {
  static const Entities all = [] {
    Entities out;
    for (const auto& [name, text] : kEntities) out.emplace(name, utf8(text));
    return out;
  }();
  return all;
}

void check_page(const Characters& page) {
  const auto bytes = fuzz::exact(utf8(page));
  REQUIRE(may_be_page(bytes.span()) == slow_may_be_page(utf8(page)));
  REQUIRE(visible_characters(bytes.span()) == slow_visible(page));
  const SlowPage expected(page);
  std::vector<uint8_t> text{'x'};
  if (plain_page(bytes.span(), entities(), &text))
    REQUIRE(std::string(text.begin(), text.end()) == utf8(expected.text()));
  else
    REQUIRE(expected.may_be_left());
}

void check_bytes(const std::string& bytes) {
  const auto exact = fuzz::exact(bytes);
  REQUIRE(may_be_page(exact.span()) == slow_may_be_page(bytes));
  REQUIRE(visible_characters(exact.span()) <= bytes.size());
  std::vector<uint8_t> text;
  plain_page(exact.span(), entities(), &text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const bool valid = input.byte() % 8, odd = input.byte() % 4 == 0;
  Characters page;
  std::string bytes;
  while (input.left() && page.size() < 400) {
    const uint8_t kind = input.byte();
    Characters piece(1, kind % 0x80);
    if (kind < 110)
      piece = kPieces[kind % kPieces.size()];
    else if (kind < 126)
      piece = kSpaces[input.byte() % kSpaces.size()];
    else if (kind < 130)
      piece = kNoLetters[input.byte() % kNoLetters.size()];
    else if (kind < 136)
      piece = U'&' + Characters(30 + input.byte() % 5, 'w') + (kind % 2 ? U";" : U"");
    else if (kind < 156 && odd)
      piece = kOddPieces[kind % kOddPieces.size()];
    page += piece;
    bytes += kind < 240 ? utf8(piece) : std::string(1, static_cast<char>(input.byte()));
  }
  if (valid)
    check_page(page);
  else
    check_bytes(bytes);
  return 0;
}
