// The kernels for the baseline instruction set.
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const Kernels kScalar = make_set<Portable>("scalar");

}  // namespace fpstore
