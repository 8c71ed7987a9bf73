// The kernels for the baseline instruction set: always there, and what the other sets are tested against.
#include "format/xxh64.hpp"
#include "isa/kernels.hpp"

namespace fpstore {
namespace {

// From how many expected entries a prefix on, comparing all entries of a block beats looking for the prefix in its codes.
constexpr uint64_t kExpandFrom = 64;
constexpr unsigned kExpandShared = UINT32_MAX;  // never: looking is cheaper

#include "format/codec.inc"
#include "build/encode.inc"
#include "search/locate.inc"
#include "build/sort.inc"
#include "search/probe.inc"
#include "search/near.inc"
#include "isa/portable.inc"
#include "isa/kernel_set.inc"

}  // namespace

const Kernels kScalar = make_set("scalar");

}  // namespace fpstore
