// Lines and characters of texts in UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "format/span.hpp"

namespace fpstore {

size_t count_lines(Span<const uint8_t> text);
size_t count_characters(Span<const uint8_t> text);

// Where the lines start and end that are not blank, each with its line break. Returns how many
// there are.
size_t find_nonblank_lines(Span<const uint8_t> text, uint64_t* starts, uint64_t* ends);

}  // namespace fpstore
