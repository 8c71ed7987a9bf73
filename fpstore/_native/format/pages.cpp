#include "format/pages.hpp"

#include "format/xxh64.hpp"

namespace fpstore {

Status compare_pages(const Pages& pages, uint64_t first, uint64_t last, Fault* fault) {
  for (uint64_t page = first; page <= last; ++page) {
    if (page % 64 == 0 && last - page >= 63 &&
        __atomic_load_n(pages.seen + page / 64, __ATOMIC_RELAXED) == UINT64_MAX) {
      page += 63;  // all of a word
      continue;
    }
    if (page_seen(pages, page)) continue;
    const uint64_t at = pages.begin + (page << kPageShift);
    const uint64_t n = pages.end - at < kPageBytes ? pages.end - at : kPageBytes;
    const uint64_t computed = xxh64(pages.data + at, n, pages.seed + page),
                   stored = load64(pages.checksums + 8 * page);
    mapped_bytes_may_change();
    if (computed != stored) {
      *fault = Fault{Status::bad_block_checksum, page, stored, computed};
      return fault->status;
    }
    __atomic_fetch_or(pages.seen + (page >> 6), uint64_t{1} << (page & 63), __ATOMIC_RELAXED);
  }
  return Status::ok;
}

void page_checksums(const uint8_t* data, uint64_t n, uint64_t seed, uint64_t number,
                    uint64_t* out) {
  for (uint64_t at = 0; at < n; at += kPageBytes)
    *out++ = xxh64(data + at, n - at < kPageBytes ? n - at : kPageBytes, seed + number++);
}

}  // namespace fpstore
