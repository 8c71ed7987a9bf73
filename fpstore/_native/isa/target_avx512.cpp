// The kernels for AVX-512 machines.
#include "isa/avx512.hpp"
#include "isa/kernel_set.hpp"
#include "text/shingles_avx512.hpp"

namespace fpstore {

const KernelSets kAvx512 = make_sets<Avx512, Avx512Tags, Avx512Text>("avx512");

}  // namespace fpstore
