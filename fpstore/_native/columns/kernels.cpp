#include "columns/kernels.hpp"

#include "isa/kernels.hpp"

namespace fpstore {

const ColumnKernels& column_kernels() {
#ifdef FPSTORE_X86
  const Kernels* const k = &kernels(64);
  if (k == &kAvx512.bits_64) return kColumnsAvx512;
  if (k == &kAvx2.bits_64) return kColumnsAvx2;
#endif
  return kColumnsScalar;
}

}  // namespace fpstore
