#include "build/numbered.hpp"

#include <algorithm>
#include <memory>

#include "build/sort.hpp"

namespace fpstore {

namespace {

// Rows gather in lines, which are written whole: many parts have more lines than the first-level cache.
constexpr size_t kRowsInLine = 16;

template <class T>
void store_rows(T* to, const T* line) {
#if defined(__SSE2__)
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    constexpr size_t kStep = 16 / sizeof(T);
    for (size_t i = 0; i < kRowsInLine; i += kStep)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(line + i)));
    return;
  }
#endif
  memcpy(to, line, kRowsInLine * sizeof(T));
}

struct Line {
  alignas(64) uint64_t keys[kRowsInLine];
  uint32_t numbers[kRowsInLine];
};

void store_part(const Line& line, uint64_t from, uint64_t to, const Numbered& out) {
  for (uint64_t i = from; i < to; ++i) {
    out.keys[i] = line.keys[i % kRowsInLine];
    out.numbers[i] = line.numbers[i % kRowsInLine];
  }
}

}  // namespace

void count_parts(const uint64_t* keys, size_t n, const Digit& by, uint64_t* counts, Stopper* stop) {
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) ++counts[digit(keys[i], by.depth, by.bits)];
  });
}

bool scatter_parts(const NumberedSource& from, const Digit& by, uint64_t* at, const Numbered& out, size_t room, Stopper* stop) {
  const size_t parts = size_t{1} << by.bits;
  const std::unique_ptr<Line[]> lines(new Line[parts]);
  const std::unique_ptr<uint64_t[]> starts(new uint64_t[parts]);
  std::copy(at, at + parts, starts.get());
  bool fits = true;
  const bool done = in_steps(from.n, stop, [&](size_t start, size_t end) {
    for (size_t i = start; i < end; ++i) {
      const uint64_t key = from.keys[i], d = digit(key, by.depth, by.bits), place = at[d]++;
      Line& line = lines[d];
      line.keys[place % kRowsInLine] = key;
      line.numbers[place % kRowsInLine] = from.numbers ? from.numbers[i] : from.first + static_cast<uint32_t>(i);
      if (place % kRowsInLine != kRowsInLine - 1) continue;
      const uint64_t first = place + 1 - kRowsInLine;
      if (__builtin_expect(place >= room, 0)) fits = false;
      if (__builtin_expect(!fits, 0)) continue;
      if (__builtin_expect(first < starts[d], 0)) {
        store_part(line, starts[d], place + 1, out);
      } else {
        store_rows(out.keys + first, line.keys);
        store_rows(out.numbers + first, line.numbers);
      }
    }
  });
  for (size_t d = 0; d < parts; ++d) fits &= at[d] <= room;
  if (!done || !fits) return fits;
  for (size_t d = 0; d < parts; ++d) store_part(lines[d], std::max(starts[d], at[d] / kRowsInLine * kRowsInLine), at[d], out);
#if defined(__SSE2__)
  _mm_sfence();
#endif
  return true;
}

void sort_numbered(const Numbered& rows, const uint64_t* ends, size_t parts, unsigned depth, Stopper* stop) {
  uint64_t most = 0;
  for (size_t part = 1; part < parts; ++part) most = std::max(most, ends[part] - ends[part - 1]);
  if (parts) most = std::max(most, ends[0]);
  const std::unique_ptr<Pair<uint64_t>[]> pairs(new Pair<uint64_t>[most]), room(new Pair<uint64_t>[most]);
  uint64_t start = 0;
  for (size_t part = 0; part < parts; start = ends[part++]) {
    const uint64_t n = ends[part] - start;
    if (should_stop(stop, n)) return;
    uint64_t* const keys = rows.keys + start;
    uint32_t* const numbers = rows.numbers + start;
    for (uint64_t i = 0; i < n; ++i) pairs[i] = Pair<uint64_t>{keys[i], numbers[i]};
    sort_range(pairs.get(), room.get(), n, depth, 64, stop);
    for (uint64_t i = 0; i < n; ++i) {
      keys[i] = pairs[i].key;
      numbers[i] = static_cast<uint32_t>(pairs[i].value);
    }
  }
}

bool are_all_distinct(const uint64_t* keys, size_t n, Stopper* stop) {
  bool repeated = false;
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from ? from : 1; i < to; ++i) repeated |= keys[i] == keys[i - 1];
  });
  return !repeated;
}

size_t group_numbered(const Numbered& rows, size_t n, uint64_t* counts, size_t* number_count, Stopper* stop) {
  size_t groups = 0, used = 0;
  for (size_t start = 0; start < n;) {
    const uint64_t key = rows.keys[start];
    size_t end = start + 1;
    while (end < n && rows.keys[end] == key) ++end;
    if (should_stop(stop, end - start)) break;
    std::sort(rows.numbers + start, rows.numbers + end);
    const size_t before = used;
    for (size_t i = start; i < end; ++i)
      if (used == before || rows.numbers[i] != rows.numbers[used - 1]) rows.numbers[used++] = rows.numbers[i];
    rows.keys[groups] = key;
    counts[groups++] = used - before;
    start = end;
  }
  *number_count = used;
  return groups;
}

}  // namespace fpstore
