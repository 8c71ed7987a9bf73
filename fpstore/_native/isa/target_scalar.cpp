// The kernels for the baseline instruction set.
#include "columns/near_tags.hpp"
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const KernelSets kScalar = make_sets<Portable, PortableTags>("scalar");

}  // namespace fpstore
