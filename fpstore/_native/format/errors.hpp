// How calls outside the hot loops fail: exceptions that carry facts. A wrong argument is an
// invalid_argument, a number outside a table an out_of_range.
#pragma once
#include <stdexcept>
#include <string>

#include "format/common.hpp"

namespace fpstore {

// What the block of a fault is: its number is that of a block, or of a page or an entry of a file
// of columns.
enum class Part { block, column };

struct File {
  std::string path;
  Part part = Part::block;
};

// What is wrong with a file.
struct FileFault {
  Fault fault;
  File file;
};

inline void need(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

// The words of a key, if a width has as many.
inline unsigned checked_words(unsigned words) {
  need(words == 1 || words == 2 || words == 4, "a key has 1, 2 or 4 words");
  return words;
}

inline void check(Status status, const Fault& fault, const File& file) {
  if (status != Status::ok) throw FileFault{fault, file};
}

}  // namespace fpstore
