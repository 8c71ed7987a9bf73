#include "delta/near_index.hpp"

#include <sys/mman.h>

namespace fpstore {

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

NearIndex::NearIndex(unsigned radius, const uint8_t bits[64])
    : blocks_(radius + 1), words_((blocks_ + 3) / 4), lookup_(words_ * 8 * 256) {
  first_[0] = 0;
  for (unsigned b = 0; b < blocks_; ++b) {
    unsigned used = 0;
    masks_[b] = 0;
    for (unsigned i = b; i < 64 && used < kBucketBits; i += blocks_, ++used) {
      const unsigned place = 63 - bits[i];  // from the least significant bit
      masks_[b] |= uint64_t{1} << place;
      for (unsigned value = 0; value < 256; ++value)
        lookup_[(b / 4 * 8 + place / 8) * 256 + value] |= uint64_t{value >> (place % 8) & 1} << (16 * (b % 4) + used);
    }
    first_[b + 1] = first_[b] + (uint64_t{1} << used);
  }
  std::fill(std::begin(holes_), std::end(holes_), kNone);
}

// Room for 2^log2_keys keys, of which the caller has reserved as much.
uint32_t NearIndex::allocate(unsigned log2_keys) {
  uint32_t& hole = holes_[log2_keys];
  if (hole != kNone) {
    const uint32_t offset = hole;
    hole = static_cast<uint32_t>(arena_[uint64_t{offset} * kUnit]);
    return offset;
  }
  const uint64_t at = arena_.size();
  arena_.resize(at + (uint64_t{1} << log2_keys));
  return static_cast<uint32_t>(at / kUnit);
}

bool NearIndex::add(uint64_t fingerprint, const Places& at) {
  if (!buckets_.size()) {
    if (!buckets_.reserve(first_[blocks_])) return false;
    buckets_.resize(first_[blocks_]);
  }
  uint64_t needed = arena_.size();
  for (unsigned b = 0; b < blocks_; ++b) {
    const uint32_t size = bucket(b, at).size;
    if (is_full(size)) needed += size ? uint64_t{2} * size : kUnit;
  }
  if (needed / kUnit >= UINT32_MAX || !arena_.reserve(needed)) return false;
  for (unsigned b = 0; b < blocks_; ++b) {
    Bucket& h = buckets_[first_[b] + at.bucket[b]];
    if (h.size == 0) {
      h.offset = allocate(2);
    } else if (is_full(h.size)) {
      const unsigned log2 = 31 - static_cast<unsigned>(__builtin_clz(h.size));
      const uint32_t larger = allocate(log2 + 1);
      uint64_t* const from = arena_.data() + uint64_t{h.offset} * kUnit;
      memcpy(arena_.data() + uint64_t{larger} * kUnit, from, h.size * sizeof(uint64_t));
      from[0] = holes_[log2];
      holes_[log2] = h.offset;
      h.offset = larger;
    }
    arena_[uint64_t{h.offset} * kUnit + h.size++] = fingerprint;
  }
  ++size_;
  return true;
}

}  // namespace fpstore
