// The kernels for aarch64 machines.
#include "isa/neon.hpp"
#include "isa/kernel_set.hpp"

namespace fpstore {

const KernelSets kNeon = make_sets<Neon, NeonTags>("neon");

}  // namespace fpstore
