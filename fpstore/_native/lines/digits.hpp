// Text with a fingerprint a line, and an id behind a separator: lines, and the digits of numbers.
#pragma once
#include <string>
#include <vector>

#include "format/common.hpp"
#include "format/span.hpp"

namespace fpstore {

// Places of a text, each from a start to an end.
struct TextPlaces {
  const uint8_t* text;
  Span<const uint64_t> starts, ends;
};

// Where lines begin and end, without the line break, and the separator of each; none of them if no
// line has one.
struct CutLines {
  std::vector<uint64_t> starts, separators, ends;
};

// Cuts whole lines. Blank lines and those that begin with # are left out. False if one line has a
// separator and another has none, or a line has several.
bool cut_lines(Span<const uint8_t> text, const std::string& separators, CutLines* out);

// Reads hexadecimal numbers of so many digits, or after 0x of one digit to so many, as rows: of 8
// digits in the upper half of a word. False if a place has something else.
bool read_hexadecimal(const TextPlaces& places, unsigned digits, uint64_t* rows);

// Reads decimal numbers below 2^bits, which is at most 2^64. False if a place has something else
// or, with `plain`, a number with leading zeros.
bool read_decimal(const TextPlaces& places, unsigned bits, bool plain, uint64_t* numbers);

}  // namespace fpstore
