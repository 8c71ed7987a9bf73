// The kernels for the baseline instruction set: always there, and what the other sets are tested against.
#include "kernels.hpp"
#include "xxh64.hpp"

namespace fpstore {
namespace {

#include "codec.inc"
#include "probe.inc"
#include "portable.inc"
#include "sort.inc"
#include "kernel_set.inc"

}  // namespace

const Kernels kScalar = make_set("scalar");

}  // namespace fpstore
