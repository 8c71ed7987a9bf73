// The kernels of joins for one instruction set; see isa/kernel_set.hpp.
#pragma once
#include "pairs/greedy.hpp"
#include "pairs/join.hpp"
#include "pairs/links.hpp"

namespace fpstore {
namespace {

template <class Isa>
constexpr PairKernels make_pairs() {
  return PairKernels{join_rows<Isa, 1>, join_rows<Isa, 2>, join_rows<Isa, 4>, link_rows<Isa, 1>, link_rows<Isa, 2>, link_rows<Isa, 4>,
                     group_rows<Isa, 1>, group_rows<Isa, 2>, group_rows<Isa, 4>};
}

}  // namespace
}  // namespace fpstore
