// The kernels for AVX-512 machines.
#include "columns/kernel_set.hpp"
#include "columns/near_tags_avx512.hpp"
#include "isa/avx512.hpp"
#include "isa/kernel_set.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

namespace {
constexpr ColumnKernels kColumns = make_columns<Avx512Tags>();
constexpr PairKernels kPairs = make_pairs<Avx512Tags>();
}  // namespace

const KernelSets kAvx512 = make_sets<Avx512>("avx512", &kColumns, &kPairs);

}  // namespace fpstore
