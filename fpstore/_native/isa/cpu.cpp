// One cached choice of instruction set, and the small helpers that must be compiled for the baseline only.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef FPSTORE_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "isa/kernels.hpp"

namespace fpstore {

namespace {

#ifdef FPSTORE_X86
// Asked of the processor itself: not every compiler's __builtin_cpu_supports knows the name. Without it the instruction counts from
// the other end, and nothing tells.
bool has_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1u << 5);
}
#endif

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

constexpr size_t kMostKept = size_t{1} << 19;
struct Kept {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Kept() { std::free(memory); }
};
thread_local Kept kept;

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
                    has_lzcnt() && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("fma");
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

void* take_memory(size_t bytes) {
  if (!kept.memory || kept.bytes != bytes) return std::malloc(bytes);
  void* const memory = kept.memory;
  kept.memory = nullptr;
  return memory;
}

void give_back(void* memory, size_t bytes) {
  if (memory && bytes <= kMostKept) {
    void* const before = kept.memory;
    kept.memory = memory;
    kept.bytes = bytes;
    memory = before;
  }
  std::free(memory);
}

void fetch_pages(const void* p, size_t n) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));  // a power of two
  const uintptr_t from = reinterpret_cast<uintptr_t>(p) & ~(page - 1);
  // Advice that cannot be taken is no fault: the page is read when it is touched.
  (void)madvise(reinterpret_cast<void*>(from), reinterpret_cast<uintptr_t>(p) + n - from, MADV_WILLNEED);
}

uint64_t major_faults() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) ? 0 : static_cast<uint64_t>(usage.ru_majflt);
}

bool should_stop(Stopper* stop, uint64_t work) {
  constexpr uint64_t kLook = 1 << 14, kPoll = 1 << 18;
  if (!stop) return false;
  if (stop->ended || (stop->wanted && stop->wanted->load(std::memory_order_relaxed))) return stop->ended = true;
  stop->work += work;
  if (!stop->poll || stop->work < kLook) return false;
  const uint64_t faults = major_faults();
  const bool waited = faults != stop->faults;
  stop->faults = faults;
  stop->quiet += stop->work;
  stop->work = 0;
  if (!waited && stop->quiet < kPoll) return false;
  stop->quiet = 0;
  return stop->ended = stop->poll();
}

PageWatch::Plan PageWatch::plan(unsigned lookups) {
  for (auto* left : {&ahead_, &trusted_}) {
    const uint32_t n = left->load(std::memory_order_relaxed);
    if (!n) continue;
    left->store(n > lookups ? n - lookups : 0, std::memory_order_relaxed);
    return left == &ahead_ ? Plan::fetch : Plan::trust;
  }
  return Plan::check;
}

// Checks are soon rare where nothing had to be waited for.
void PageWatch::note(bool waited) {
  const uint32_t trust = waited ? 0 : std::min(std::max(2 * trust_.load(std::memory_order_relaxed), kLookups / 64), kLookups);
  trust_.store(trust, std::memory_order_relaxed);
  trusted_.store(trust, std::memory_order_relaxed);
  ahead_.store(waited ? kLookups : 0, std::memory_order_relaxed);
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
