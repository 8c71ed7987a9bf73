// The kernels for aarch64 machines.
#include "columns/kernel_set.hpp"
#include "columns/near_tags_neon.hpp"
#include "isa/kernel_set.hpp"
#include "isa/neon.hpp"
#include "pairs/kernel_set.hpp"

namespace fpstore {

namespace {
constexpr ColumnKernels kColumns = make_columns<NeonTags>();
constexpr PairKernels kPairs = make_pairs<NeonTags>();
}  // namespace

const KernelSets kNeon = make_sets<Neon>("neon", &kColumns, &kPairs);

}  // namespace fpstore
