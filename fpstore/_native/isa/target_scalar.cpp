// The kernels for the baseline instruction set.
#include "columns/kernel_set.hpp"
#include "columns/near_tags.hpp"
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

const KernelSets kScalar = make_sets<Portable>("scalar");
const ColumnKernels kColumnsScalar = make_columns<PortableTags>();
const PairKernels kPairsScalar = make_pairs<PortableTags>();

}  // namespace fpstore
