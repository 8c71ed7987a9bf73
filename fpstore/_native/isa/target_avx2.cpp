// The kernels for AVX2 and BMI machines.
#include "columns/kernel_set.hpp"
#include "columns/near_tags_avx2.hpp"
#include "isa/avx2.hpp"
#include "isa/kernel_set.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

const KernelSets kAvx2 = make_sets<Avx2>("avx2");
const ColumnKernels kColumnsAvx2 = make_columns<Avx2Tags>();
const PairKernels kPairsAvx2 = make_pairs<Avx2Tags>();

}  // namespace fpstore
