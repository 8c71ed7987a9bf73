// The kernels for the baseline instruction set.
#include "columns/kernel_set.hpp"
#include "columns/near_tags.hpp"
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

namespace {
constexpr ColumnKernels kColumns = make_columns<PortableTags>();
constexpr PairKernels kPairs = make_pairs<PortableTags>();
}  // namespace

const KernelSets kScalar = make_sets<Portable>("scalar", &kColumns, &kPairs);

}  // namespace fpstore
