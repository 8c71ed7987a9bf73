// One cached choice of instruction set, and the small helpers that must be compiled for the baseline only.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "kernels.hpp"

namespace fpstore {

namespace {

const Kernels* best() {
#ifdef FPSTORE_X86
  if (const Kernels* k = kernels_named("avx512")) return k;
  if (const Kernels* k = kernels_named("avx2")) return k;
#endif
  return &kScalar;
}

const Kernels* initial() {
  const char* wanted = wanted_isa();
  const Kernels* k = *wanted ? kernels_named(wanted) : nullptr;
  return k ? k : best();
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const char* wanted_isa() {
  const char* wanted = std::getenv("FPSTORE_ISA");
  return wanted ? wanted : "";
}

const Kernels* kernels_named(const char* name) {
  if (strcmp(name, "scalar") == 0) return &kScalar;
#ifdef FPSTORE_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("fma");
  if (strcmp(name, "avx2") == 0) return avx2 ? &kAvx2 : nullptr;
  if (strcmp(name, "avx512") == 0)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vpopcntdq") &&
                   __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2")
               ? &kAvx512
               : nullptr;
#endif
  return nullptr;
}

const Kernels& kernels() {
  const Kernels* k = chosen.load(std::memory_order_relaxed);
  if (!k) {
    k = initial();
    chosen.store(k, std::memory_order_relaxed);
  }
  return *k;
}

bool select_kernels(const char* name) {
  const Kernels* k = *name ? kernels_named(name) : best();
  if (!k) return false;
  chosen.store(k, std::memory_order_relaxed);
  return true;
}

bool grow(Sink* sink) {
  uint64_t capacity = sink->capacity ? sink->capacity * 2 : 256;
  if (capacity > sink->limit) capacity = sink->limit;
  if (capacity <= sink->capacity) return false;
  void* p = std::realloc(sink->matches, capacity * sizeof(Match));
  if (!p) return false;
  sink->matches = static_cast<Match*>(p);
  sink->capacity = capacity;
  return true;
}

void release(Sink* sink) {
  std::free(sink->matches);
  *sink = Sink{};
}

void* take_memory(size_t bytes) { return std::malloc(bytes); }

void give_back(void* memory) { std::free(memory); }

void fetch_pages(const void* p, size_t n) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));  // a power of two
  const uintptr_t from = reinterpret_cast<uintptr_t>(p) & ~(page - 1);
  // Advice that cannot be taken is no fault: the page is read when it is touched.
  (void)madvise(reinterpret_cast<void*>(from), reinterpret_cast<uintptr_t>(p) + n - from, MADV_WILLNEED);
}

void make_permutation(const uint8_t source[64], Permutation* forward, Permutation* inverse) {
  uint64_t by_rotation[64] = {};
  for (unsigned i = 0; i < 64; ++i) {
    // Bit positions count from the MSB: moving from source[i] to i is a left rotation by source[i] - i.
    by_rotation[(source[i] - i) & 63] |= uint64_t{1} << (63 - source[i]);
  }
  forward->count = inverse->count = 0;
  for (unsigned r = 0; r < 64; ++r) {
    const uint64_t mask = by_rotation[r];
    if (!mask) continue;
    forward->mask[forward->count] = mask;
    forward->rotate[forward->count++] = static_cast<uint8_t>(r);
    inverse->mask[inverse->count] = r ? (mask << r) | (mask >> (64 - r)) : mask;
    inverse->rotate[inverse->count++] = static_cast<uint8_t>((64 - r) & 63);
  }
}

}  // namespace fpstore
