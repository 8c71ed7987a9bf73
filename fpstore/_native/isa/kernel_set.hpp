// The kernels of one instruction set. Each target_*.cpp compiles them for its own, and nothing of them is seen outside it: of what
// two objects share the linker keeps one, and that might be the one that this machine cannot run.
#pragma once
#include "build/block_encode.hpp"
#include "build/sort.hpp"
#include "build/table_sums.hpp"
#include "format/block_decode.hpp"
#include "isa/kernels.hpp"
#include "search/locate.hpp"
#include "search/probe.hpp"
#include "search/scan.hpp"

namespace fpstore {
namespace {

template <class Isa>
constexpr Kernels make_set(const char* name) {
  return Kernels{name,   permute,       permute_select,     permute_sort, sort_keys,   sort_pairs, histogram, digest,
                 encode, encode_finish, decode_blocks<Isa>, scan<Isa>,    locate<Isa>, probe<Isa>, Isa::near};
}

}  // namespace
}  // namespace fpstore
