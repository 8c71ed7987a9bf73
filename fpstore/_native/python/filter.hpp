// A filter and its mapping, whose class in Python module_filters.cpp binds.
#pragma once
#include "format/filter.hpp"
#include "python/module.hpp"

namespace fpstore {

struct Filter {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  FilterHeader header;
  std::unique_ptr<uint64_t[]> seen;
  FilterView view;
  bool told = false;

  Filter(Bytes data, std::string name);

  // Tells the logger of damage that a look-up met, once. The caller holds the GIL.
  void tell_damage() {
    if (is_damaged(view) && !told) tell();
  }

 private:
  void tell();
};

}  // namespace fpstore
