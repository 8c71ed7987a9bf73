// Fields of JSON lines: whatever the bytes, nothing outside of them is read; a block is read just
// where a slow reader of JSON finds all of its lines regular, and with the same values.
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "lines/json_lines.hpp"

using namespace fpstore;

namespace {

const std::vector<std::string> kNames = {"a", "b", "\xc3\xa9"};
// Parts of strings, of which some are no characters.
const std::vector<std::string> kCharacters = {
    "x",
    "longer than a word",
    "\x7f",
    "\xc2\x80",
    "\xdf\xbf",
    "\xe0\xa0\x80",
    "\xed\x9f\xbf",
    "\xee\x80\x80",
    "\xef\xbf\xbf",
    "\xf0\x90\x80\x80",
    "\xf4\x8f\xbf\xbf",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0000",
    "\\u007f",
    "\\u0080",
    "\\u07FF",
    "\\u0800",
    "\\ud7ff",
    "\\uE000",
    "\\uffff",
    "\\ud800\\udc00",
    "\\uDBFF\\uDFFF",
};
const std::vector<std::string> kNumbers = {
    "0",   "-0",   "7",     "-12",    "0.5",      "3.25",       "1e5",      "2E+07",
    "NaN", "null", "1e-00", "123456", "Infinity", "-Infinity",  "true",     "false",
    "0e0", "{}",   "[ ]",   "-1.0e1", "\"\"",     "1e00000100", "1e999999", "1e1000000"};
const std::vector<std::string> kBlanks = {" ", "\t", "\r", " \r\t "};
// What makes a line irregular in most places outside of strings, or inside.
const std::vector<std::string> kBadTokens = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             ":",
                                             ",",
                                             "\"",
                                             "\\",
                                             "x",
                                             " ",
                                             "\n",
                                             "}\n{",
                                             "\x0b",
                                             "\x80",
                                             "-",
                                             "+",
                                             ".",
                                             "e",
                                             "0",
                                             "01",
                                             "1.",
                                             ".5",
                                             "1e",
                                             "nul",
                                             "NaN",
                                             "-NaN",
                                             "tru",
                                             "1e1234567",
                                             "\"a\":1,",
                                             ",\"a\":1,\"a\":2",
                                             "\"\\u0061\":2,"};
const std::vector<std::string> kBadCharacters = {"\n",
                                                 "\x1f",
                                                 std::string(1, '\0'),
                                                 "\\",
                                                 "\\v",
                                                 "\\x41",
                                                 "\"",
                                                 "\\u12\"",
                                                 "\\u12g4",
                                                 "\\u+123",
                                                 "\\ud800",
                                                 "\\udc00",
                                                 "\\ud800\\u0041",
                                                 "\\ud800\\ud800",
                                                 "\\udbff\\ue000",
                                                 "\\ud83d\\n",
                                                 "\\udc00\\udc00",
                                                 "\x80",
                                                 "\xbf",
                                                 "\xc0\x80",
                                                 "\xc1\xbf",
                                                 "\xe0\x9f\xbf",
                                                 "\xed\xa0\x80",
                                                 "\xf0\x8f\xbf\xbf",
                                                 "\xf4\x90\x80\x80",
                                                 "\xf5\x80\x80\x80",
                                                 "\xff",
                                                 "\xc3",
                                                 "\xe4\xb8",
                                                 "\xf0\x9f\x98",
                                                 "\xf0\x9f\x98"
                                                 "A"};

// Lines of JSON that are drawn from an input, with one piece of damage at most.
class Writer {
 public:
  explicit Writer(fuzz::Input* input) : input_(input), before_damage_(input->byte() % 64) {}

  std::string lines() {
    for (unsigned left = 1 + input_->byte() % 3; left--;) {
      object(0);
      put("\n");
    }
    if (input_->byte() < 16) out_.pop_back();
    return out_;
  }

 private:
  const std::string& one_of(const std::vector<std::string>& all) {
    return all[input_->byte() % all.size()];
  }
  void put(const std::string& piece, const std::vector<std::string>& bad = kBadTokens) {
    if (before_damage_-- == 0) {
      out_ += one_of(bad);
      if (input_->byte() % 4 == 0) return;  // in place of the piece
    }
    out_ += piece;
    if (input_->left() && input_->byte() < 16 && piece.size() == 1 && strchr("{}[]:,", piece[0]))
      out_ += one_of(kBlanks);
  }
  void string() {
    put("\"");
    for (unsigned left = input_->byte() % 8; left--;) put(one_of(kCharacters), kBadCharacters);
    put("\"", kBadCharacters);
  }
  void name() {
    switch (input_->byte() % 8) {
      case 0:
        return put("\"\\u0061\"");
      case 1:
        return put("\"\\u00E9\"");
      case 2:
        return string();
      default:
        return put('"' + one_of(kNames) + '"');
    }
  }
  void object(unsigned depth) {
    put("{");
    for (unsigned left = input_->byte() % 4; left--;) {
      name();
      put(":");
      value(depth + 1);
      if (left) put(",");
    }
    put("}");
  }
  void array(unsigned depth) {
    put("[");
    for (unsigned left = input_->byte() % 4; left--;) {
      value(depth + 1);
      if (left) put(",");
    }
    put("]");
  }
  void value(unsigned depth) {
    switch (input_->byte() % 16) {
      case 0:
      case 1:
        return depth < 6 ? object(depth) : string();
      case 2:
      case 3:
        return depth < 6 ? array(depth) : string();
      case 4: {
        const unsigned deep = 29 + input_->byte() % 4;
        put(std::string(deep, '['));
        return put(std::string(deep, ']'));
      }
      case 5:
        return put(std::string(398 + input_->byte() % 4, '1'));
      case 6:
      case 7:
      case 8:
        return put(one_of(kNumbers));
      default:
        return string();
    }
  }

  fuzz::Input* input_;
  unsigned before_damage_;
  std::string out_;
};

struct Irregular {};

using Value = std::pair<JsonKind, std::string>;
using Row = std::map<std::string, Value>;

void append_point(std::string* out, uint32_t point) {
  if (point < 0x80) {
    *out += static_cast<char>(point);
    return;
  }
  const unsigned later = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  *out += static_cast<char>((0xF0 << (3 - later) & 0xFF) | point >> 6 * later);
  for (unsigned i = later; i-- > 0;) *out += static_cast<char>(0x80 | (point >> 6 * i & 0x3F));
}

// The code points of UTF-8: each is read as long as its first byte says, and must be written so.
void check_utf8(const std::string& text) {
  for (size_t p = 0; p < text.size();) {
    const auto lead = static_cast<uint8_t>(text[p]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (!size || p + size > text.size()) throw Irregular();
    uint32_t point = size == 1 ? lead : lead & (0x7F >> size);
    for (size_t i = 1; i < size; ++i) {
      if ((text[p + i] & 0xC0) != 0x80) throw Irregular();
      point = point << 6 | (text[p + i] & 0x3F);
    }
    std::string again;
    append_point(&again, point);
    if (again != text.substr(p, size) || point > 0x10FFFF || point >> 11 == 0x1B) throw Irregular();
    p += size;
  }
}

class SlowLine {
 public:
  explicit SlowLine(std::string line) : line_(std::move(line)) {}

  Row read() {
    blanks();
    expect('{');
    blanks();
    Row row;
    if (!take('}')) {
      do {
        blanks();
        const std::optional<std::string> name = string();
        if (!name) throw Irregular();
        blanks();
        expect(':');
        blanks();
        const bool is_read = std::find(kNames.begin(), kNames.end(), *name) != kNames.end();
        const Value read = value(1);
        if (is_read && (read.first == JsonKind::missing || !row.emplace(*name, read).second))
          throw Irregular();
        blanks();
      } while (take(','));
      expect('}');
    }
    blanks();
    if (at_ != line_.size()) throw Irregular();
    return row;
  }

 private:
  char peek() const { return at_ < line_.size() ? line_[at_] : '\n'; }
  bool take(char c) {
    const bool is_there = at_ < line_.size() && line_[at_] == c;
    at_ += is_there;
    return is_there;
  }
  void expect(char c) {
    if (!take(c)) throw Irregular();
  }
  void blanks() {
    while (take(' ') || take('\t') || take('\r')) continue;
  }
  size_t digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }
  void word(const std::string& expected) {
    for (const char c : expected) expect(c);
  }

  // The missing one is a string with half of a surrogate pair.
  Value value(unsigned depth) {
    const size_t start = at_;
    if (peek() == '"') {
      const std::optional<std::string> text = string();
      return text ? Value{JsonKind::string, *text} : Value{JsonKind::missing, ""};
    }
    if (peek() == '{' || peek() == '[') {
      items(depth);
    } else if (peek() == 't') {
      word("true");
    } else if (peek() == 'f') {
      word("false");
    } else if (peek() == 'n') {
      word("null");
    } else if (peek() == 'N') {
      word("NaN");
    } else {
      number();
    }
    return {JsonKind::other, line_.substr(start, at_ - start)};
  }

  void number() {
    const size_t start = at_;
    take('-');
    if (peek() == 'I') return word("Infinity");
    if (!take('0') && !digits()) throw Irregular();
    if (take('.') && !digits()) throw Irregular();
    if (take('e') || take('E')) {
      if (!take('-')) take('+');
      const size_t size = digits();
      if (!size || size > 6) throw Irregular();
    }
    if (at_ - start > 400) throw Irregular();
  }

  void items(unsigned depth) {
    if (depth == 32) throw Irregular();
    const bool named = take('{');
    if (!named) expect('[');
    const char last = named ? '}' : ']';
    blanks();
    if (take(last)) return;
    do {
      blanks();
      if (named) {
        string();
        blanks();
        expect(':');
        blanks();
      }
      value(depth + 1);
      blanks();
    } while (take(','));
    expect(last);
  }

  uint32_t unit() {
    uint32_t out = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::string all = "0123456789abcdef0123456789ABCDEF";
      const size_t digit = all.find(peek());
      if (digit == std::string::npos) throw Irregular();
      out = out << 4 | (digit & 15);
      ++at_;
    }
    return out;
  }

  // None if half of a surrogate pair is in it.
  std::optional<std::string> string() {
    expect('"');
    std::string out;
    bool has_half = false;
    uint32_t high = 0;  // of a pair
    while (!take('"')) {
      uint32_t low = 0;
      if (take('\\')) {
        const std::string from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
        const size_t place = from.find(peek());
        if (take('u')) {
          const uint32_t point = unit();
          if (point >> 10 == 0x37) {
            low = point;
          } else if (point >> 10 == 0x36) {
            has_half |= high != 0;
            high = point;
            continue;
          } else {
            append_point(&out, point);
          }
        } else if (place != std::string::npos) {
          out += to[place];
          ++at_;
        } else {
          throw Irregular();
        }
      } else if (static_cast<uint8_t>(peek()) < 0x20) {
        throw Irregular();
      } else {
        out += line_[at_++];
      }
      has_half |= (low != 0) != (high != 0);
      if (low && high) append_point(&out, 0x10000 + ((high & 0x3FF) << 10 | (low & 0x3FF)));
      high = 0;
    }
    if (has_half || high) return std::nullopt;
    return out;
  }

  std::string line_;
  size_t at_ = 0;
};

std::vector<std::string> lines_of(const std::string& block) {
  std::vector<std::string> out;
  size_t start = 0;
  for (size_t end; (end = block.find('\n', start)) != std::string::npos; start = end + 1)
    out.push_back(block.substr(start, end - start));
  if (start < block.size()) out.push_back(block.substr(start));
  return out;
}

std::optional<std::vector<Row>> slow_rows(const std::string& block) {
  std::vector<Row> out;
  if (!block.empty() && block.back() != '\n') return std::nullopt;
  try {
    check_utf8(block);
    for (const std::string& line : lines_of(block)) out.push_back(SlowLine(line).read());
  } catch (const Irregular&) {
    return std::nullopt;
  }
  return out;
}

struct Column {
  std::unique_ptr<uint8_t[]> data;
  std::unique_ptr<uint64_t[]> ends;
  std::unique_ptr<JsonKind[]> kinds;
};

void check_rows(const std::string& block) {
  const auto bytes = fuzz::exact(block);
  const std::vector<std::string> lines = lines_of(block);
  std::vector<Column> columns;
  std::vector<JsonField> fields;
  for (const std::string& name : kNames) {
    columns.push_back({std::unique_ptr<uint8_t[]>(new uint8_t[block.size() + kJsonSlack]),
                       std::unique_ptr<uint64_t[]>(new uint64_t[lines.size()]),
                       std::unique_ptr<JsonKind[]>(new JsonKind[lines.size()])});
    fields.push_back(
        {name, columns.back().data.get(), columns.back().ends.get(), columns.back().kinds.get()});
  }
  const bool regular = read_json_lines(bytes.span(), {fields.data(), fields.size()});
  const auto rows = slow_rows(block);
  REQUIRE(regular == rows.has_value());
  REQUIRE(read_json_lines(bytes.span(), {}) || !regular);
  for (size_t i = 0; regular && i < fields.size(); ++i) {
    uint64_t start = 0;
    for (size_t row = 0; row < rows->size(); ++row) {
      const uint64_t end = fields[i].ends[row];
      const auto found = (*rows)[row].find(kNames[i]);
      const Value expected =
          found == (*rows)[row].end() ? Value{JsonKind::missing, ""} : found->second;
      REQUIRE(start <= end && end <= block.size());
      REQUIRE(fields[i].kinds[row] == expected.first);
      REQUIRE(std::string(fields[i].data + start, fields[i].data + end) == expected.second);
      start = end;
    }
    REQUIRE(start == fields[i].size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  std::string block;
  if (input.byte() % 8) {
    block = Writer(&input).lines();
  } else {
    while (input.left()) block += static_cast<char>(input.byte());
    block += '\n';
  }
  check_rows(block);
  return 0;
}
