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
#include "search/near.hpp"
#include "search/scan.hpp"

namespace fpstore {
namespace {

template <class Isa>
constexpr Kernels make_set(const char* name) {
  using W = typename Isa::W;
  // What does not depend on where the leading word ends is compiled once for both narrow widths.
  using Whole = Width<W::kWords * 64>;
  using Row = typename W::Row;
  return Kernels{name,         permute<Whole>,    permute_select<Whole>, permute_sort<Whole>, sort_keys<Whole>, sort_pairs<Whole>,
                 histogram<Row>, digest<Row>,     encode<W>,             encode_finish<W>,    decode_blocks<Isa>, scan<Isa>,
                 locate<Isa>,  probe<Isa>,        near<Isa>};
}

template <template <class> class Isa>
constexpr KernelSets make_sets(const char* name, const ColumnKernels* columns, const PairKernels* pairs) {
  return KernelSets{make_set<Isa<Width<32>>>(name), make_set<Isa<Width<64>>>(name), make_set<Isa<Width<128>>>(name),
                    make_set<Isa<Width<256>>>(name), columns, pairs};
}

}  // namespace
}  // namespace fpstore
