// One cached choice of instruction set.
#ifdef FPSTORE_X86
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdlib>

#include "isa/kernels.hpp"

namespace fpstore {

namespace {

#ifdef FPSTORE_X86
// Asked of the processor itself: not every compiler's __builtin_cpu_supports knows the name.
// Without it the instruction counts from the other end, and nothing tells.
bool has_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1u << 5);
}
#endif

const KernelSets* best() {
  const KernelSets* k = nullptr;
  for (const char* name : kSetNames)
    if (const KernelSets* better = kernels_named(name)) k = better;
  return k;
}

const KernelSets* initial() {
  const char* wanted = wanted_isa();
  const KernelSets* k = *wanted ? kernels_named(wanted) : nullptr;
  return k ? k : best();
}

std::atomic<const KernelSets*> chosen{nullptr};

const KernelSets& in_use() {
  const KernelSets* k = chosen.load(std::memory_order_relaxed);
  if (!k) {
    k = initial();
    chosen.store(k, std::memory_order_relaxed);
  }
  return *k;
}

}  // namespace

const char* wanted_isa() {
  const char* wanted = std::getenv("FPSTORE_ISA");
  return wanted ? wanted : "";
}

const KernelSets* kernels_named(const char* name) {
  if (strcmp(name, "scalar") == 0) return &kScalar;
#ifdef FPSTORE_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && has_lzcnt() &&
                    __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("fma");
  if (strcmp(name, "avx2") == 0) return avx2 ? &kAvx2 : nullptr;
  if (strcmp(name, "avx512") == 0)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512cd") &&
                   __builtin_cpu_supports("avx512vpopcntdq") &&
                   __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2")
               ? &kAvx512
               : nullptr;
#endif
#ifdef FPSTORE_ARM
  if (strcmp(name, "neon") == 0) return &kNeon;
#endif
  return nullptr;
}

const Kernels& kernels(unsigned width) {
  const KernelSets& k = in_use();
  return width == 64 ? k.bits_64 : width == 32 ? k.bits_32 : width == 128 ? k.bits_128 : k.bits_256;
}

const ColumnKernels& column_kernels() { return *in_use().columns; }
const PairKernels& pair_kernels() { return *in_use().pairs; }
const TextKernels& text_kernels() { return in_use().text; }

bool select_kernels(const char* name) {
  const KernelSets* k = *name ? kernels_named(name) : best();
  if (!k) return false;
  chosen.store(k, std::memory_order_relaxed);
  return true;
}

}  // namespace fpstore
