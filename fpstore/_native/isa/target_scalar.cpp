// The kernels for the baseline instruction set.
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const KernelSets kScalar = make_sets<Portable>("scalar");

}  // namespace fpstore
