#include "text/normal.hpp"

#include <algorithm>
#include <cstring>

#include "isa/kernels.hpp"

namespace fpstore {

namespace {

constexpr size_t kMaxForm = 64 + 2;   // bytes for one character, with separators
constexpr unsigned kDepends = 0x100;  // above all combining classes

// The code point at p, and how many bytes it has. Nothing is read from `end` on: what a wrong text
// lacks is zero.
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

// The first byte of this value from p on, or the end.
const uint8_t* find(const uint8_t* p, const uint8_t* end, uint8_t value) {
  const void* const found = memchr(p, value, static_cast<size_t>(end - p));
  return found ? static_cast<const uint8_t*>(found) : end;
}

// Where the line of p starts.
const uint8_t* line_start(const uint8_t* start, const uint8_t* p) {
  while (p > start && p[-1] != '\n') --p;
  return p;
}

// Puts units into bytes, with one space between two. A local copy of this stays in registers;
// members of a text would not: bytes that are written may be theirs.
class UnitWriter {
 public:
  explicit UnitWriter(std::vector<uint8_t>* bytes)
      : bytes_(bytes), out_(bytes->data()), room_(bytes->size()) {}

  // Makes room for n bytes, and for the padding.
  void reserve(size_t more) {
    if (room_ - size_ >= more + kTextPadding) return;
    bytes_->resize(2 * room_ + more + kTextPadding);
    out_ = bytes_->data();
    room_ = bytes_->size();
  }

  void put_ascii(const uint8_t* ascii, const uint8_t* p, const uint8_t* end) {
    const AsciiRun run{ascii, p, static_cast<size_t>(end - p)};
    size_ += kernels_.put_ascii(run, &in_unit_, out_ + size_);
  }
  // Puts characters of three bytes, up to kRun, that stay as they are, alone or in a unit, or are
  // separators: most of Chinese. There is room for as many more bytes. Returns the place behind
  // them, where another character is, or the end is near.
  static constexpr unsigned kRun = 64;
  const uint8_t* put_run(const CharMap& map, const uint8_t* p, const uint8_t* end) {
    const auto kind = [](CharKind k) { return static_cast<uint32_t>(k) << kKindShift; };
    uint8_t* out = out_ + size_;
    unsigned in_unit = in_unit_;
    for (unsigned i = 0; i < kRun && end - p >= 4 && (*p & 0xF0) == 0xE0; ++i, p += 3) {
      const uint32_t bytes = load32(p);
      const uint32_t point = (bytes & 0x0F) << 12 | (bytes >> 2 & 0xFC0) | (bytes >> 16 & 0x3F);
      const int32_t page = map.pages[point / kPagePoints];
      if (page < 0) break;
      const uint32_t entry =
          map.entries[static_cast<size_t>(page) * kPagePoints + point % kPagePoints];
      if (entry == kind(CharKind::unit)) {
        *out = ' ';
        out += in_unit;
        store32(out, (bytes & 0xFFFFFF) | uint32_t{' '} << 24);
        out += 4;
        in_unit = 0;
      } else if (entry == kind(CharKind::same)) {
        store32(out, bytes);
        out += 3;
        in_unit = 1;
      } else if (entry == kind(CharKind::space)) {
        *out = ' ';
        out += in_unit;
        in_unit = 0;
      } else {
        break;
      }
    }
    size_ = static_cast<size_t>(out - out_);
    in_unit_ = in_unit;
    return p;
  }
  void put(const uint8_t* p, unsigned size) {
    for (unsigned i = 0; i < size; ++i) out_[size_ + i] = p[i];
    size_ += size;
    in_unit_ = 1;
  }
  void put_space() {
    out_[size_] = ' ';
    size_ += in_unit_;
    in_unit_ = 0;
  }
  void put_forms(const uint8_t* p, const uint8_t* end) {
    for (; p < end; ++p)
      if (*p == ' ')
        put_space();
      else
        put(p, 1);
  }

  // Puts the padding. Returns the size without it.
  size_t finish() {
    if (size_ && !in_unit_) --size_;
    memset(out_ + size_, ' ', kTextPadding);
    return size_;
  }

 private:
  const TextKernels& kernels_ = text_kernels();
  std::vector<uint8_t>* bytes_;
  uint8_t* out_;
  size_t room_, size_ = 0;
  unsigned in_unit_ = 0;  // 1: the last byte is no separator
};

}  // namespace

void NormalText::set(const CharMap& map, const uint8_t* text, uint64_t start, uint64_t stop,
                     UnknownForms* unknown) {
  UnitWriter writer(&bytes_);
  const uint8_t *p = text + start, *const end = text + stop;
  const size_t lines = unknown->lines.size();
  writer.reserve(static_cast<size_t>(end - p));
  bool as_it_is = false;    // whether a passage is
  bool is_missing = false;  // whether the page of a character is
  unsigned combining =
      0;  // the class of the character before: marks in another order would be sorted
  while (p < end) {
    const uint8_t* const rest = behind_ascii(p, end);
    if (rest != p) {
      writer.put_ascii(map.ascii, p, rest);
      if (combining &&
          !std::all_of(p, rest, [&](uint8_t c) { return map.ascii[c] == kIgnoredByte; }))
        combining = 0;
      p = rest;
      if (p == end) break;
    }
    if (*p == kAsItIs) {
      const uint8_t* const behind = find(p + 1, end, kAsItIs);
      writer.reserve(static_cast<size_t>(end - p));
      writer.put_forms(p + 1, behind);
      combining = 0;
      as_it_is = true;
      p = behind + (behind < end);
      continue;
    }
    writer.reserve(static_cast<size_t>(end - p) + UnitWriter::kRun + kMaxForm);
    if (const uint8_t* const behind = writer.put_run(map, p, end); behind != p) {
      combining = 0;
      p = behind;
      continue;
    }
    unsigned size;
    const uint32_t point = code_point(p, end, &size);
    const int32_t page = map.pages[point / kPagePoints];
    if (page < 0) {
      unknown->miss(point / kPagePoints);
      is_missing = true;
      p += size;
      continue;
    }
    const uint32_t entry =
        map.entries[static_cast<size_t>(page) * kPagePoints + point % kPagePoints];
    const unsigned before = combining;
    combining = entry & 0xFF;
    switch (static_cast<CharKind>(entry >> kKindShift)) {
      case CharKind::unit:
        writer.put_space();
        writer.put(p, size);
        writer.put_space();
        break;
      case CharKind::same:
        writer.put(p, size);
        break;
      case CharKind::space:
        writer.put_space();
        break;
      case CharKind::removed:
        break;
      case CharKind::ignored:
        combining = before;
        p += size;
        continue;
      case CharKind::replaced: {
        const uint8_t* const form = map.pool + (entry & kPlaceMask);
        writer.put_forms(form, form + (entry >> kFormShift & kFormMask));
        combining = 0xFF;  // not known, and above all others
        break;
      }
      default:
        combining = kDepends;
    }
    if (combining == kDepends || (combining && before > combining && combining != 0xFF)) {
      unknown->lines.push_back(static_cast<uint64_t>(line_start(text + start, p) - text));
      p = find(p, end, '\n');
      unknown->lines.push_back(static_cast<uint64_t>(p - text));
      combining = 0;
      continue;
    }
    p += size;
  }
  size_ = writer.finish();
  if (!is_missing && (size_ || start == stop || as_it_is)) return;
  unknown->lines.resize(lines);
  unknown->lines.insert(unknown->lines.end(), {start, stop});
}

}  // namespace fpstore
