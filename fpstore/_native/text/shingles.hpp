// Units of texts and the hashes of their shingles, in portable C++. The other sets replace what
// they have instructions for.
#pragma once
#include "format/xxh64.hpp"
#include "text/text_kernels.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// XXH64 of features, which have few bytes, of numbers that no processor foresees: the last ones are
// taken without a branch, from memory of which 8 bytes behind may be read.
struct Xxh64 {
  uint64_t seed;
  uint64_t operator()(const uint8_t* p, size_t size) const {
    using namespace xxh;
    if (size >= 32) return xxh64(p, size, seed);
    uint64_t h = seed + kP5 + size;
    for (const uint8_t* const end = p + (size & 24); p < end; p += 8)
      h = rotl(h ^ lane(0, load64(p)), 27) * kP1 + kP4;
    const uint64_t four = rotl(h ^ (load32(p) * kP1), 23) * kP2 + kP3;
    h = size & 4 ? four : h;
    p += size & 4;
    for (size_t i = 0; i < 3; ++i) {
      const uint64_t next = rotl(h ^ (p[i] * kP5), 11) * kP1;
      h = i < (size & 3) ? next : h;
    }
    return avalanche(h);
  }
};

struct PortableText {
  // What tells of eight bytes which ones start a unit, by their highest bits.
  struct BehindSpaces {
    static constexpr size_t kBefore = 1;  // of a unit, the byte that is looked at
    uint64_t operator()(uint64_t bytes) const {
      const uint64_t x = bytes ^ 0x2020202020202020u;
      return ~(((x & ~kHigh) + ~kHigh) | x) & kHigh;
    }
  };
  struct Characters {
    static constexpr size_t kBefore = 0;
    uint64_t operator()(uint64_t bytes) const { return ~(bytes & ~(bytes << 1)) & kHigh; }
  };

  static size_t put_ascii(const AsciiRun& run, unsigned* in_unit, uint8_t* out) {
    size_t size = 0;
    unsigned before = *in_unit, all_stay = 1;
    for (size_t i = 0; i < run.size; ++i) {
      const uint8_t c = run.table[run.text[i]];
      const unsigned is_unit = c != ' ';
      all_stay &= c < kIgnoredByte;
      out[size] = c;
      size += is_unit | before;
      before = is_unit;
    }
    if (all_stay) {
      *in_unit = before;
      return size;
    }
    size = 0;
    before = *in_unit;
    for (size_t i = 0; i < run.size; ++i) {
      const uint8_t c = run.table[run.text[i]];
      const unsigned is_unit = c != ' ', stays = c < kIgnoredByte;
      out[size] = c;
      size += (is_unit | before) & stays;
      before = stays ? is_unit : before;
    }
    *in_unit = before;
    return size;
  }

  static size_t word_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    return find(search, starts, room, BehindSpaces{});
  }
  static size_t char_starts(UnitSearch* search, uint64_t* starts, size_t room) {
    return find(search, starts, room, Characters{});
  }

  static void hash_shingles(const Shingles& shingles, size_t n, uint64_t seed, uint64_t* hashes) {
    const Xxh64 hash{seed};
    for (size_t i = 0; i < n; ++i)
      hashes[i] = hash(shingles.text + shingles.starts[i],
                       static_cast<size_t>(shingles.starts[i + shingles.length] -
                                           shingles.starts[i] - shingles.gap));
  }

 private:
  static constexpr uint64_t kHigh = 0x8080808080808080u;

  template <class StartsOf>
  static size_t find(UnitSearch* search, uint64_t* starts, size_t room, StartsOf starts_of) {
    size_t count = 0, at = search->at;
    for (; at < search->end && count + kStartsBehind <= room; at += 8) {
      uint64_t found = starts_of(load64(search->text + at - StartsOf::kBefore));
      const size_t left = search->end - at;
      if (FPSTORE_UNLIKELY(left < 8)) found &= (uint64_t{1} << 8 * left) - 1;
      if (found == kHigh) {
        for (unsigned k = 0; k < 8; ++k) starts[count + k] = at + k;
        count += 8;
        continue;
      }
      for (; found; found &= found - 1)
        starts[count++] = at + (static_cast<unsigned>(__builtin_ctzll(found)) >> 3);
    }
    search->at = at < search->end ? at : search->end;
    return count;
  }
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
