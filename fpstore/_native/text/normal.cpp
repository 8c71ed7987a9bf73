#include "text/normal.hpp"

#include <cstring>

#include "format/common.hpp"

namespace fpstore {

namespace {

constexpr uint64_t kHighBits = 0x8080808080808080u;
constexpr size_t kMostForm = 64 + 2;  // bytes for one character, with separators

// The code point at p, and how many bytes it has. Nothing is read from `end` on: what a wrong text lacks is zero.
uint32_t code_point(const uint8_t* p, const uint8_t* end, unsigned* size) {
  const unsigned first = *p;
  if (first >= 0xE0 && first < 0xF0 && end - p >= 3) {  // most of what is not ASCII
    *size = 3;
    return (first & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
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

}  // namespace

// Makes room for so many bytes behind those that are there, and for the padding.
inline void NormalText::reserve(size_t more) {
  if (bytes_.size() - size_ < more + kPadding) bytes_.resize(2 * bytes_.size() + more + kPadding);
}

inline void NormalText::put_ascii(const uint8_t* ascii, const uint8_t* p, const uint8_t* end) {
  uint8_t* const out = bytes_.data();
  size_t n = size_;
  unsigned in_unit = in_unit_;
  for (; p < end; ++p) {
    const uint8_t c = ascii[*p];
    const unsigned is_unit = c != ' ', stays = c != kRemovedByte;
    out[n] = c;
    n += (is_unit | in_unit) & stays;
    in_unit = stays ? is_unit : in_unit;
  }
  size_ = n;
  in_unit_ = in_unit;
}

inline void NormalText::put(const uint8_t* p, size_t size) {
  memcpy(bytes_.data() + size_, p, size);
  size_ += size;
  in_unit_ = true;
}

inline void NormalText::put_space() {
  bytes_[size_] = ' ';
  size_ += in_unit_;
  in_unit_ = false;
}

bool NormalText::set(const CharMap& map, const uint8_t* p, const uint8_t* end, std::vector<bool>* missing) {
  size_ = 0;
  in_unit_ = false;
  reserve(static_cast<size_t>(end - p));
  unsigned combining = 0;  // the class of the character before: marks in another order would be sorted
  while (p < end) {
    const uint8_t* const rest = behind_ascii(p, end);
    if (rest != p) {
      put_ascii(map.ascii, p, rest);
      combining = 0;
      p = rest;
      if (p == end) break;
    }
    unsigned size;
    const uint32_t point = code_point(p, end, &size);
    const int32_t page = map.pages[point / kPagePoints];
    if (page < 0) {
      (*missing)[point / kPagePoints] = true;
      p += size;
      continue;
    }
    const uint32_t entry = map.entries[static_cast<size_t>(page) * kPagePoints + point % kPagePoints];
    reserve(static_cast<size_t>(end - p) + kMostForm);
    const unsigned before = combining;
    combining = entry & 0xFF;
    switch (static_cast<CharKind>(entry >> kKindShift)) {
      case CharKind::unit:
        put_space();
        put(p, size);
        put_space();
        break;
      case CharKind::same:
        put(p, size);
        break;
      case CharKind::space:
        put_space();
        break;
      case CharKind::removed:
        break;
      case CharKind::replaced: {
        const uint8_t* const form = map.pool + (entry & kPlaceMask);
        for (const uint8_t *f = form, *last = form + (entry >> kFormShift & kFormMask); f < last; ++f)
          if (*f == ' ')
            put_space();
          else
            put(f, 1);
        combining = 0xFF;  // not known, and above all others
        break;
      }
      default:
        return false;
    }
    if (combining && before > combining && combining != 0xFF) return false;
    p += size;
  }
  if (size_ && !in_unit_) --size_;
  memset(bytes_.data() + size_, ' ', kPadding);
  return true;
}

}  // namespace fpstore
