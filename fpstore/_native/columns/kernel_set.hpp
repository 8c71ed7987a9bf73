// The kernels of column tables for one instruction set; see isa/kernel_set.hpp.
#pragma once
#include "columns/kernels.hpp"
#include "columns/probe.hpp"

namespace fpstore {
namespace {

template <class Isa>
constexpr ColumnKernels make_columns() {
  return ColumnKernels{probe_columns<Isa, 1>, probe_columns<Isa, 2>, probe_columns<Isa, 4>, near_rows<2>, near_rows<4>};
}

}  // namespace
}  // namespace fpstore
