// Values that somebody else keeps.
#pragma once
#include <cstddef>

namespace fpstore {

template <class T>
struct Span {
  T* data = nullptr;
  size_t size = 0;

  T& operator[](size_t i) const { return data[i]; }
  T* begin() const { return data; }
  T* end() const { return data + size; }
};

}  // namespace fpstore
