// The kernels for AVX2 and BMI machines.
#include "isa/avx2.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const KernelSets kAvx2 = make_sets<Avx2>("avx2");

}  // namespace fpstore
