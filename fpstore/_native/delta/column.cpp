// The memory of columns: pages of the system, which grow in place or move without a copy.
#include "delta/column.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace fpstore {

#ifdef FPSTORE_SMALL
void* resize_pages(void* pages, size_t from, size_t to) {
  char* const p = to ? new (std::nothrow) char[to]() : nullptr;
  if (p && from) memcpy(p, pages, std::min(from, to));
  if (p || !to) delete[] static_cast<char*>(pages);
  return p;
}
#else
void* resize_pages(void* pages, size_t from, size_t to) {
  // From here on large pages pay: look-ups go all over the array.
  constexpr size_t kLarge = size_t{8} << 20;
  if (to == 0) {
    if (from) munmap(pages, from);
    return nullptr;
  }
  void* p = from ? mremap(pages, from, to, MREMAP_MAYMOVE)
                 : mmap(nullptr, to, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  // Advice that cannot be taken is no fault.
  if (to >= kLarge) (void)madvise(p, to, MADV_HUGEPAGE);
  return p;
}
#endif

}  // namespace fpstore
