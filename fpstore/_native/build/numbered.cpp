#include "build/numbered.hpp"

#include <algorithm>
#include <memory>

#include "build/sort.hpp"
#include "isa/steps.hpp"

namespace fpstore {

namespace {

// Rows gather in lines, which are written whole: many parts have more lines than the first-level
// cache.
template <class Row>
constexpr size_t kRowsInLine = 128 / sizeof(Row);

template <class T>
void store_rows(T* to, const T* line, size_t bytes) {
#if defined(__SSE2__)
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (size_t i = 0; i < bytes / 16; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i,
                       _mm_load_si128(reinterpret_cast<const __m128i*>(line) + i));
    return;
  }
#endif
  memcpy(to, line, bytes);
}

template <class Row, class Number>
struct Line {
  static constexpr size_t kRows = kRowsInLine<Row>;
  alignas(64) Row keys[kRows];
  alignas(16) Number numbers[kRows];

  void store(uint64_t from, uint64_t to, const Numbered<Row, Number>& out) const {
    for (uint64_t i = from; i < to; ++i) {
      out.keys[i] = keys[i % kRows];
      out.numbers[i] = numbers[i % kRows];
    }
  }
};

template <class Row>
uint64_t digit_in(const Row& key, const Digit& by) {
  return digit(word_of(key, by.depth / 64), by.depth % 64, by.bits);
}

}  // namespace

template <class Row>
void count_parts(const Row* keys, size_t n, const Digit& by, uint64_t* counts, Stopper* stop) {
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) ++counts[digit_in(keys[i], by)];
  });
}

template <class Row, class Number>
bool scatter_parts(const NumberedSource<Row, Number>& from, const Digit& by, uint64_t* at,
                   const Numbered<Row, Number>& out, size_t room, Stopper* stop) {
  constexpr size_t kRows = kRowsInLine<Row>;
  const size_t parts = size_t{1} << by.bits;
  const std::unique_ptr<Line<Row, Number>[]> lines(new Line<Row, Number>[parts]);
  const std::unique_ptr<uint64_t[]> starts(new uint64_t[parts]);
  std::copy(at, at + parts, starts.get());
  bool fits = true;
  const bool done = in_steps(from.n, stop, [&](size_t start, size_t end) {
    for (size_t i = start; i < end; ++i) {
      const Row key = from.keys[i];
      const uint64_t d = digit_in(key, by), place = at[d]++;
      Line<Row, Number>& line = lines[d];
      line.keys[place % kRows] = key;
      line.numbers[place % kRows] =
          from.numbers ? from.numbers[i] : from.first + static_cast<Number>(i);
      if (place % kRows != kRows - 1) continue;
      const uint64_t first = place + 1 - kRows;
      if (FPSTORE_UNLIKELY(place >= room)) fits = false;
      if (FPSTORE_UNLIKELY(!fits)) continue;
      if (FPSTORE_UNLIKELY(first < starts[d])) {
        line.store(starts[d], place + 1, out);
      } else {
        store_rows(out.keys + first, line.keys, sizeof line.keys);
        store_rows(out.numbers + first, line.numbers, kRows * sizeof(Number));
      }
    }
  });
  for (size_t d = 0; d < parts; ++d) fits &= at[d] <= room;
  if (!done || !fits) return fits;
  for (size_t d = 0; d < parts; ++d)
    lines[d].store(std::max(starts[d], at[d] / kRows * kRows), at[d], out);
#if defined(__SSE2__)
  _mm_sfence();
#endif
  return true;
}

template <class Row, class Number>
void sort_numbered(const Numbered<Row, Number>& rows, const uint64_t* ends, size_t parts,
                   unsigned depth, Stopper* stop) {
  uint64_t most = 0;
  for (size_t part = 1; part < parts; ++part) most = std::max(most, ends[part] - ends[part - 1]);
  if (parts) most = std::max(most, ends[0]);
  const std::unique_ptr<Pair<Row>[]> pairs(new Pair<Row>[most]), room(new Pair<Row>[most]);
  uint64_t start = 0;
  for (size_t part = 0; part < parts; start = ends[part++]) {
    const uint64_t n = ends[part] - start;
    if (should_stop(stop, n)) return;
    Row* const keys = rows.keys + start;
    Number* const numbers = rows.numbers + start;
    for (uint64_t i = 0; i < n; ++i) pairs[i] = Pair<Row>{keys[i], numbers[i]};
    sort_rows(pairs.get(), room.get(), n, depth, sizeof(Row) * 8, stop);
    for (uint64_t i = 0; i < n; ++i) {
      keys[i] = pairs[i].key;
      numbers[i] = static_cast<Number>(pairs[i].value);
    }
  }
}

template <class Row>
bool are_all_distinct(const Row* keys, size_t n, Stopper* stop) {
  bool repeated = false;
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from ? from : 1; i < to; ++i) repeated |= keys[i] == keys[i - 1];
  });
  return !repeated;
}

namespace {

// Sorts numbers, which may be all there are; false when the call is to end early.
template <class Number>
bool sort_numbers(Number* from, Number* to, Stopper* stop) {
  Steps steps(stop);
  try {
    std::sort(from, to, [&](Number a, Number b) {
      steps.tick();
      return a < b;
    });
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

}  // namespace

template <class Row, class Number>
size_t group_numbered(const Numbered<Row, Number>& rows, size_t n, uint64_t* counts,
                      size_t* number_count, Stopper* stop) {
  size_t groups = 0, used = 0;
  for (size_t start = 0; start < n;) {
    const Row key = rows.keys[start];
    size_t end = start + 1;
    bool ascend = true;
    for (; end < n && rows.keys[end] == key; ++end)
      ascend &= rows.numbers[end - 1] < rows.numbers[end];
    if (should_stop(stop, end - start) ||
        !(ascend || sort_numbers(rows.numbers + start, rows.numbers + end, stop)))
      break;
    const size_t before = used;
    for (size_t i = start; i < end; ++i)
      if (used == before || rows.numbers[i] != rows.numbers[used - 1])
        rows.numbers[used++] = rows.numbers[i];
    rows.keys[groups] = key;
    counts[groups++] = used - before;
    start = end;
  }
  *number_count = used;
  return groups;
}

#define FPSTORE_NUMBERS(Row, Number)                                                           \
  template bool scatter_parts(const NumberedSource<Row, Number>&, const Digit&, uint64_t*,     \
                              const Numbered<Row, Number>&, size_t, Stopper*);                 \
  template void sort_numbered(const Numbered<Row, Number>&, const uint64_t*, size_t, unsigned, \
                              Stopper*);                                                       \
  template size_t group_numbered(const Numbered<Row, Number>&, size_t, uint64_t*, size_t*,     \
                                 Stopper*);
#define FPSTORE_KEYS(Row)                                                           \
  template void count_parts(const Row*, size_t, const Digit&, uint64_t*, Stopper*); \
  template bool are_all_distinct(const Row*, size_t, Stopper*);                     \
  FPSTORE_NUMBERS(Row, uint32_t)                                                    \
  FPSTORE_NUMBERS(Row, uint64_t)
FPSTORE_KEYS(uint64_t)
FPSTORE_KEYS(Wide<2>)
FPSTORE_KEYS(Wide<4>)

}  // namespace fpstore
