// Lines, characters and numbers of texts: whatever the bytes, nothing outside of them is read, and
// what is found is what simple loops find.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input.hpp"
#include "lines/digits.hpp"
#include "lines/lines.hpp"

using namespace fpstore;

namespace {

using Numbers = std::vector<uint64_t>;

// A text of a few bytes, now and then a long run of one, or any byte.
std::string draw_text(fuzz::Input* input, const std::string& usual) {
  std::string out;
  for (unsigned left = input->byte(); left && input->left(); --left) {
    const uint8_t kind = input->byte();
    const char c = kind < 232 ? usual[kind % usual.size()] : static_cast<char>(input->byte());
    out.append(kind % 32 == 31 ? input->word(2) % 800 : 1, c);
  }
  return out;
}

void check_counts(const std::string& text) {
  const auto bytes = fuzz::exact(text);
  size_t lines = 0, characters = 0, start = 0;
  Numbers starts, ends;
  for (size_t i = 0; i < text.size(); ++i) {
    lines += text[i] == '\n';
    characters += (text[i] & 0xC0) != 0x80;
    if (text[i] != '\n' && i + 1 < text.size()) continue;
    if (text.substr(start, i + 1 - start).find_first_not_of(" \t\r\n") != std::string::npos) {
      starts.push_back(start);
      ends.push_back(i + 1);
    }
    start = i + 1;
  }
  REQUIRE(count_lines(bytes.span()) == lines);
  REQUIRE(count_characters(bytes.span()) == characters);
  const std::unique_ptr<uint64_t[]> found_starts(new uint64_t[starts.size()]),
      found_ends(new uint64_t[starts.size()]);
  REQUIRE(find_nonblank_lines(bytes.span(), found_starts.get(), found_ends.get()) == starts.size());
  for (size_t i = 0; i < starts.size(); ++i)
    REQUIRE(found_starts[i] == starts[i] && found_ends[i] == ends[i]);
}

// Whole lines; none if they are not alike.
std::optional<CutLines> slow_cut(const std::string& text, const std::string& separators) {
  CutLines out;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') continue;
    const size_t end = i > start && text[i - 1] == '\r' ? i - 1 : i, line = start;
    start = i + 1;
    if (line == end || text[line] == '#') continue;
    Numbers found;
    for (size_t at = line; at < end; ++at)
      if (separators.find(text[at]) != std::string::npos) found.push_back(at);
    const bool is_like = out.starts.empty() || found.size() == !out.separators.empty();
    if (found.size() > 1 || !is_like) return std::nullopt;
    out.starts.push_back(line);
    out.separators.insert(out.separators.end(), found.begin(), found.end());
    out.ends.push_back(end);
  }
  return out;
}

void check_cut(const std::string& text, const std::string& separators) {
  const auto bytes = fuzz::exact(text);
  CutLines found;
  const bool cut = cut_lines(bytes.span(), separators, &found);
  const std::optional<CutLines> expected = slow_cut(text, separators);
  REQUIRE(cut == expected.has_value());
  if (!cut) return;
  REQUIRE(found.starts == expected->starts && found.ends == expected->ends);
  REQUIRE(found.separators == expected->separators);
}

// The words of a row.
std::optional<Numbers> slow_hexadecimal(std::string number, unsigned digits) {
  const std::string prefix = number.substr(0, 2);
  if ((prefix == "0x" || prefix == "0X") && number.size() > 2) {
    number.erase(0, 2);
    if (number.size() < digits) number.insert(0, digits - number.size(), '0');
  }
  if (number.size() != digits) return std::nullopt;
  Numbers row(digits > 16 ? digits / 16 : 1);
  for (unsigned i = 0; i < digits; ++i) {
    const size_t place = std::string("0123456789abcdef0123456789ABCDEF").find(number[i]);
    if (place == std::string::npos) return std::nullopt;
    row[i / 16] |= uint64_t{place % 16} << (60 - 4 * (i % 16));
  }
  return row;
}

std::optional<Numbers> slow_decimal(const std::string& number, unsigned bits, bool plain) {
  if (number.empty() || number.size() > 20 || (plain && number[0] == '0' && number.size() > 1))
    return std::nullopt;
  unsigned __int128 value = 0;
  for (const char c : number) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + static_cast<unsigned>(c - '0');
  }
  if (value >> bits) return std::nullopt;
  return Numbers{static_cast<uint64_t>(value)};
}

std::string decimal(unsigned __int128 value) {
  std::string out;
  for (; value || out.empty(); value /= 10) out.insert(0, 1, static_cast<char>('0' + value % 10));
  return out;
}

// One number, with a piece of damage now and then.
std::string draw_number(fuzz::Input* input, unsigned digits, unsigned bits) {
  std::string out;
  const uint8_t kind = input->byte();
  if (digits) {
    if (kind < 80) out = kind % 2 ? "0x" : "0X";
    unsigned size = digits;
    if (kind < 60 || kind > 250) size = input->byte() % (digits + 2);
    while (size--) out += "0123456789abcdef0123456789ABCDEF"[input->byte() % 32];
  } else if (kind < 128) {  // about the largest one
    out =
        decimal((static_cast<unsigned __int128>(1) << bits) + input->byte() % 16 - 8 * (bits > 3));
  } else {
    for (unsigned left = input->byte() % 23; left; --left) out += "0123456789"[input->byte() % 10];
  }
  if (kind % 8 == 0) out.insert(0, input->byte() % 4, '0');
  if (kind % 16 == 1 && !out.empty())
    out[input->byte() % out.size()] =
        input->byte() % 8 ? "/:@aAgGxX-"[input->byte() % 10] : static_cast<char>(input->byte());
  return out;
}

void check_numbers(fuzz::Input* input) {
  const unsigned kind = input->byte(), digits = kind % 2 ? 8u << kind / 2 % 4 : 0;
  const unsigned bits = kind % 4 ? 1 + input->byte() % 64 : 64;
  const bool plain = kind & 0x80;
  const unsigned words = digits > 16 ? digits / 16 : 1;
  std::string text;
  Numbers starts, ends, expected;
  bool right = true;
  for (unsigned left = input->byte() % 5; left; --left) {
    const std::string number = draw_number(input, digits, bits);
    text += std::string(input->byte() % 2, '7');
    starts.push_back(text.size());
    text += number;
    ends.push_back(text.size());
    const std::optional<Numbers> row =
        digits ? slow_hexadecimal(number, digits) : slow_decimal(number, bits, plain);
    right &= row.has_value();
    if (row) expected.insert(expected.end(), row->begin(), row->end());
  }
  const auto bytes = fuzz::exact(text);
  const TextPlaces places{bytes.get(), {starts.data(), starts.size()}, {ends.data(), ends.size()}};
  const std::unique_ptr<uint64_t[]> found(new uint64_t[words * starts.size()]);
  REQUIRE((digits ? read_hexadecimal(places, digits, found.get())
                  : read_decimal(places, bits, plain, found.get())) == right);
  for (size_t i = 0; right && i < expected.size(); ++i) REQUIRE(found[i] == expected[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 4) {
    case 0:
      check_counts(draw_text(&input, " \t\r\n\n x\xC3\xA4\xE4\xB8\xAD\x80\xBF\xC0"));
      break;
    case 1: {
      // Distinct ones, of which a text has few.
      const std::string separators = std::string(",\t;\r #\0", 7).substr(0, input.byte() % 8);
      check_cut(draw_text(&input, input.byte() % 2 ? "abc\r\n\n\n#" : "abcd\r\n\n#,\t"),
                separators);
      break;
    }
    default:
      check_numbers(&input);
  }
  return 0;
}
