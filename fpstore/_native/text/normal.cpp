#include "text/normal.hpp"

#include <cstring>

#include "format/common.hpp"

namespace fpstore {

namespace {

constexpr uint64_t kHighBits = 0x8080808080808080u;

// The code point at p, and how many bytes it has. Nothing is read from `end` on: what a wrong text lacks is zero.
uint32_t code_point(const uint8_t* p, const uint8_t* end, unsigned* size) {
  const unsigned first = *p;
  *size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (static_cast<size_t>(end - p) < *size) *size = static_cast<unsigned>(end - p);
  uint32_t point = first & (first < 0xE0 ? 0x1F : first < 0xF0 ? 0x0F : 0x07);
  for (unsigned i = 1; i < *size; ++i) point = point << 6 | (p[i] & 0x3F);
  return point < kCodePoints ? point : 0;
}

// The first byte from p on that is not ASCII, or the end.
const uint8_t* behind_ascii(const uint8_t* p, const uint8_t* end) {
  for (; end - p >= 8; p += 8)
    if (const uint64_t high = load64(p) & kHighBits) return p + (__builtin_ctzll(high) >> 3);
  while (p < end && *p < 0x80) ++p;
  return p;
}

void append(std::vector<uint8_t>* out, const uint8_t* from, size_t size) { out->insert(out->end(), from, from + size); }

// Appends the normal form; false when it is not known.
bool append_normal(const CharMap& map, const uint8_t* p, const uint8_t* end, Normalized* out, std::vector<bool>* missing) {
  const uint8_t* kept = p;  // what is as it is from here on has not been appended
  for (;;) {
    p = behind_ascii(p, end);
    if (p == end) break;
    unsigned size;
    const uint32_t point = code_point(p, end, &size);
    const int32_t page = map.pages[point / kPagePoints];
    if (page < 0) {
      (*missing)[point / kPagePoints] = true;
      p += size;
      continue;
    }
    const uint32_t entry = map.entries[static_cast<size_t>(page) * kPagePoints + point % kPagePoints];
    const CharKind kind = static_cast<CharKind>(entry >> 30);
    if (kind == CharKind::unknown) return false;
    if (kind == CharKind::replaced) {
      append(&out->text, kept, static_cast<size_t>(p - kept));
      append(&out->text, map.pool + (entry & 0xFFFFFF), entry >> 24 & 0x3F);
      kept = p + size;
    }
    p += size;
  }
  append(&out->text, kept, static_cast<size_t>(end - kept));
  return true;
}

}  // namespace

Normalized normalize(const CharMap& map, const uint8_t* text, const uint64_t* offsets, uint64_t n) {
  Normalized out;
  std::vector<bool> missing(kCodePoints / kPagePoints);
  out.ends.reserve(n);
  out.text.reserve(offsets[n] - offsets[0]);
  for (uint64_t i = 0; i < n; ++i) {
    const size_t before = out.text.size();
    if (!append_normal(map, text + offsets[i], text + offsets[i + 1], &out, &missing)) {
      out.text.resize(before);
      out.unknown.push_back(i);
    }
    out.ends.push_back(out.text.size());
  }
  for (uint32_t page = 0; page < missing.size(); ++page)
    if (missing[page]) out.missing.push_back(page);
  return out;
}

}  // namespace fpstore
