// The kernels for aarch64 machines.
#include "isa/neon.hpp"
#include "isa/kernel_set.hpp"
#include "text/shingles.hpp"

namespace fpstore {

const KernelSets kNeon = make_sets<Neon, NeonTags, PortableText>("neon");

}  // namespace fpstore
