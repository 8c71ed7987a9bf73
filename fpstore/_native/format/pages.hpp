// Pages of a mapped file, each of which is verified before it is used for the first time.
#pragma once
#include "format/common.hpp"

namespace fpstore {

// The checksums of a file's pages, and which of them have been compared. Threads share it: a bit
// that one sets late only lets another compare the page again.
struct Pages {
  const uint8_t* data;       // the file
  const uint8_t* checksums;  // of its pages, in the file
  uint64_t* seen;            // a bit a page
  uint64_t begin;            // where the first page begins in the file
  uint64_t end;              // where the last one ends
  uint64_t seed;
};

constexpr unsigned kPageShift = 12;
constexpr unsigned kPageBytes = 1 << kPageShift;  // what a checksum covers

// Words of the bitmap for a file with these pages.
static inline uint64_t seen_words(uint64_t begin, uint64_t end) {
  return (end - begin + (uint64_t{64} << kPageShift)) >> (kPageShift + 6);
}

static inline bool page_seen(const Pages& pages, uint64_t page) {
  return __atomic_load_n(pages.seen + (page >> 6), __ATOMIC_RELAXED) >> (page & 63) & 1;
}

// Compares the pages of [first, last], of those that have not been compared.
Status compare_pages(const Pages& pages, uint64_t first, uint64_t last, Fault* fault);

// Whether the bytes [at, at + n) lie in at most two pages, which have been compared; n > 0.
static inline bool pages_seen(const Pages& pages, uint64_t at, uint64_t n) {
  const uint64_t first = (at - pages.begin) >> kPageShift,
                 last = (at + n - 1 - pages.begin) >> kPageShift;
  mapped_bytes_may_change();
  return last - first < 2 && page_seen(pages, first) && page_seen(pages, last);
}

// Makes sure that the bytes [at, at + n) of the file were right when they were first looked at; n >
// 0, and they lie in its pages.
static inline Status verify(const Pages& pages, uint64_t at, uint64_t n, Fault* fault) {
  if (FPSTORE_LIKELY(pages_seen(pages, at, n))) return Status::ok;
  return compare_pages(pages, (at - pages.begin) >> kPageShift,
                       (at + n - 1 - pages.begin) >> kPageShift, fault);
}

// The checksum of each whole page in n bytes, and of what is left behind them; number is that of
// the first page.
void page_checksums(const uint8_t* data, uint64_t n, uint64_t seed, uint64_t number, uint64_t* out);

}  // namespace fpstore
