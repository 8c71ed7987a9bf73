#include "lines/lines.hpp"

#include <algorithm>
#include <cstring>

namespace fpstore {

namespace {

template <class Counted>
size_t count_if(Span<const uint8_t> bytes, Counted counted) {
  size_t count = 0;
  constexpr size_t part = 255;  // whose count fits in a byte, so that compilers count many at once
  for (size_t start = 0; start < bytes.size; start += part) {
    uint8_t in_part = 0;
    for (size_t i = start; i < std::min(start + part, bytes.size); ++i)
      in_part = static_cast<uint8_t>(in_part + counted(bytes[i]));
    count += in_part;
  }
  return count;
}

}  // namespace

size_t count_lines(Span<const uint8_t> text) {
  return count_if(text, [](uint8_t c) { return c == '\n'; });
}

size_t count_characters(Span<const uint8_t> text) {
  return count_if(text, [](uint8_t c) { return static_cast<int8_t>(c) >= -0x40; });
}

size_t find_nonblank_lines(Span<const uint8_t> text, uint64_t* starts, uint64_t* ends) {
  size_t count = 0, start = 0;
  while (start < text.size) {
    const void* const found = memchr(text.begin() + start, '\n', text.size - start);
    const size_t end =
        found ? static_cast<size_t>(static_cast<const uint8_t*>(found) - text.begin()) + 1
              : text.size;
    const auto is_blank = [](uint8_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    if (!std::all_of(text.begin() + start, text.begin() + end, is_blank)) {
      starts[count] = start;
      ends[count++] = end;
    }
    start = end;
  }
  return count;
}

}  // namespace fpstore
