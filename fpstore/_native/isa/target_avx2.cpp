// The kernels for AVX2 and BMI machines.
#include "columns/kernel_set.hpp"
#include "columns/near_tags_avx2.hpp"
#include "isa/avx2.hpp"
#include "isa/kernel_set.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

namespace {
constexpr ColumnKernels kColumns = make_columns<Avx2Tags>();
constexpr PairKernels kPairs = make_pairs<Avx2Tags>();
}  // namespace

const KernelSets kAvx2 = make_sets<Avx2>("avx2", &kColumns, &kPairs);

}  // namespace fpstore
