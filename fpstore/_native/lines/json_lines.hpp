// Fields of JSON lines, read without an object for each line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/span.hpp"

namespace fpstore {

// What a line has in a field.
enum class JsonKind : uint8_t { missing, string, other };

constexpr size_t kJsonSlack = 8;  // bytes that are written behind a value, and mean nothing

// The values of a field, a line each, one after the other: strings in UTF-8, others as they stand.
struct JsonField {
  std::string_view name;
  uint8_t* data;  // room for all bytes of the lines, and kJsonSlack more
  uint64_t* ends;
  JsonKind* kinds;
  uint64_t size = 0;  // of the values so far
};

// Reads fields of the object that each line is. Each line ends with a line break.
//
// False if a line is not regular: Python must read it. A regular line is UTF-8 and one object,
// which json.loads reads with the same values. Irregular are: a field that is read and stands
// twice, half of a surrogate pair in a value that is read or in a name, a number of many digits,
// and a value that lies very deep.
bool read_json_lines(Span<const uint8_t> lines, Span<JsonField> fields);

}  // namespace fpstore
