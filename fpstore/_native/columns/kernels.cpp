#include "columns/kernels.hpp"

#include "isa/kernels.hpp"

namespace fpstore {

const ColumnKernels& column_kernels() {
#ifdef FPSTORE_X86
  const Kernels* const k = &kernels();
  if (k == &kAvx512) return kColumnsAvx512;
  if (k == &kAvx2) return kColumnsAvx2;
#endif
  return kColumnsScalar;
}

}  // namespace fpstore
