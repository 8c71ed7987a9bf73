// The kernels for AVX2 and BMI machines.
#include "columns/near_tags_avx2.hpp"
#include "isa/avx2.hpp"
#include "isa/kernel_set.hpp"
#include "text/shingles_avx2.hpp"

namespace fpstore {

const KernelSets kAvx2 = make_sets<Avx2, Avx2Tags, Avx2Text>("avx2");

}  // namespace fpstore
