// Memory, pages and stops of long calls.
#include "isa/runtime.hpp"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace fpstore {

namespace {

constexpr size_t kMaxKept = size_t{1} << 19;
struct Kept {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Kept() { std::free(memory); }
};
thread_local Kept kept;

}  // namespace

void* take_memory(size_t bytes) {
  if (!kept.memory || kept.bytes != bytes) return std::malloc(bytes);
  void* const memory = kept.memory;
  kept.memory = nullptr;
  return memory;
}

void give_back(void* memory, size_t bytes) {
  if (memory && bytes <= kMaxKept) {
    void* const before = kept.memory;
    kept.memory = memory;
    kept.bytes = bytes;
    memory = before;
  }
  std::free(memory);
}

void* room_in(Scratch* scratch, unsigned number, size_t bytes) {
  void*& memory = scratch->memory[number];
  size_t& size = scratch->bytes[number];
  if (memory && bytes <= size) return memory;
  give_back(memory, size);
  memory = take_memory(bytes);
  size = bytes;
  return memory;
}

void release(Scratch* scratch) {
  for (unsigned i = 0; i < 2; ++i) {
    give_back(scratch->memory[i], scratch->bytes[i]);
    scratch->memory[i] = nullptr;
  }
}

void fetch_pages(const void* p, size_t n) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));  // a power of two
  const uintptr_t from = reinterpret_cast<uintptr_t>(p) & ~(page - 1);
  // Advice that cannot be taken is no fault: the page is read when it is touched.
  (void)madvise(reinterpret_cast<void*>(from), reinterpret_cast<uintptr_t>(p) + n - from,
                MADV_WILLNEED);
}

bool map_cached_pages(int file, const uint8_t* mapped, uint64_t start, uint64_t bytes) {
  constexpr long kCachestat = 451;   // Linux 6.5, the same number for all processors
  constexpr int kPopulateRead = 22;  // Linux 5.14
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  struct {
    uint64_t start, bytes;
  } const range = {start, bytes};
  struct {
    uint64_t cached, dirty, written_back, evicted, recently_evicted;  // pages
  } state;
  return syscall(kCachestat, file, &range, &state, 0) == 0 &&
         state.cached >= (bytes + page - 1) / page &&
         madvise(const_cast<uint8_t*>(mapped) + start, bytes, kPopulateRead) == 0;
}

uint64_t random_word() {
  uint64_t word;
  // A system that has just started may have no randomness yet. Then the address of the stack
  // serves, which is weak.
  if (getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word)
    word = reinterpret_cast<uintptr_t>(&word) * 0x9E3779B97F4A7C15;
  return word;
}

uint64_t major_faults() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) ? 0 : static_cast<uint64_t>(usage.ru_majflt);
}

bool should_stop(Stopper* stop, uint64_t work) {
  constexpr uint64_t kLook = 1 << 14, kPoll = 1 << 18;
  if (!stop) return false;
  if (stop->ended || (stop->wanted && stop->wanted->load(std::memory_order_relaxed)))
    return stop->ended = true;
  stop->work += work;
  if (!stop->poll || stop->work < kLook) return false;
  const uint64_t faults = major_faults();
  const bool waited = faults != stop->faults;
  stop->faults = faults;
  stop->quiet += stop->work;
  stop->work = 0;
  if (!waited && stop->quiet < kPoll) return false;
  stop->quiet = 0;
  return stop->ended = stop->poll(stop->of);
}

}  // namespace fpstore
