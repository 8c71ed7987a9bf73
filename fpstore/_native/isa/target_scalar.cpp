// The kernels for the baseline instruction set.
#include "columns/near_tags.hpp"
#include "isa/portable.hpp"
#include "isa/kernel_set.hpp"
#include "text/shingles.hpp"

namespace fpstore {

const KernelSets kScalar = make_sets<Portable, PortableTags, PortableText>("scalar");

}  // namespace fpstore
