// The kernels for the baseline instruction set: always there, and what the other sets are tested against.
#include "kernels.hpp"
#include "xxh64.hpp"

namespace fpstore {
namespace {

// From how many expected entries a prefix on, comparing all entries of a block beats looking for the prefix in its codes.
constexpr uint64_t kExpandFrom = 64;
constexpr unsigned kExpandShared = UINT32_MAX;  // never: looking is cheaper

#include "codec.inc"
#include "encode.inc"
#include "locate.inc"
#include "sort.inc"
#include "probe.inc"
#include "near.inc"
#include "portable.inc"
#include "kernel_set.inc"

}  // namespace

const Kernels kScalar = make_set("scalar");

}  // namespace fpstore
