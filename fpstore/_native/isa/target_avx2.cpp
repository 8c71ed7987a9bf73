// The kernels for AVX2 and BMI machines.
#include "columns/near_tags_avx2.hpp"
#include "isa/avx2.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const KernelSets kAvx2 = make_sets<Avx2, Avx2Tags>("avx2");

}  // namespace fpstore
