// Permutations and radix sorts.
// Large inputs are scattered by their leading digit; what fits the second-level cache is sorted
// there by two stable counting passes, and what still ties is sorted by the bits that follow. Bits
// that all keys share are skipped, so skewed sets cost no more than uniform ones. The arrays of
// counts belong to functions that are left before a part is sorted in turn: sorting is deep when
// keys tie often, and must not need a large stack.
#pragma once
#include "build/output.hpp"
#include "format/permutation.hpp"
#include "isa/runtime.hpp"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class Row>
struct Pair {
  Row key;
  uint64_t value;
};
// What is sorted by digits: the leading word.
template <class Row>
inline uint64_t key_of(const Row& x) {
  return leading_word(x);
}
template <class Row>
inline uint64_t key_of(const Pair<Row>& x) {
  return leading_word(x.key);
}
template <class Row>
inline const Row& row_in(const Row& x) {
  return x;
}
template <class Row>
inline const Row& row_in(const Pair<Row>& x) {
  return x.key;
}

constexpr unsigned kScatterBits = 9;    // as many streams as the first-level cache has lines for
constexpr unsigned kCountingBits = 18;  // both passes together
constexpr size_t kInsertion = 24;
constexpr size_t kStep = size_t{1} << 16;  // keys between two looks at whether to end
template <class T>
constexpr size_t cache_items() {
  return (size_t{1} << 19) / sizeof(T);
}

// Stable insertion sort by the bits of mask.
template <class T>
inline void insertion_sort(T* a, size_t n, uint64_t mask) {
  for (size_t i = 1; i < n; ++i) {
    const T x = a[i];
    const uint64_t k = key_of(x) & mask;
    size_t j = i;
    for (; j > 0 && (key_of(a[j - 1]) & mask) > k; --j) a[j] = a[j - 1];
    a[j] = x;
  }
}

// Bits [depth, depth + bits) of a key; 1 <= bits and depth + bits <= 64.
inline uint64_t digit(uint64_t key, unsigned depth, unsigned bits) {
  return key << depth >> (64 - bits);
}

inline void running_sums(uint32_t* counts, size_t digits) {
  uint32_t sum = 0;
  for (size_t d = 0; d < digits; ++d) {
    const uint32_t c = counts[d];
    counts[d] = sum;
    sum += c;
  }
}

// Sorts a[0, n) by the bits [depth, end) of the keys; the bits before depth are equal. tmp has the
// same room; the result is in a.
template <class T>
void sort_range(T* a, T* tmp, size_t n, unsigned depth, unsigned end, Stopper* stop);

// Does a part of the work on the items from each kStep-th on, up to the next; false when the call
// is to end early.
template <class Part>
inline bool in_steps(size_t n, Stopper* stop, Part part) {
  for (size_t from = 0; from < n; from += kStep) {
    const size_t to = n - from < kStep ? n : from + kStep;
    if (should_stop(stop, to - from)) return false;
    part(from, to);
  }
  return true;
}

// Two stable counting passes over 1 to kCountingBits bits, lower digit first, a to tmp and back.
template <class T>
__attribute__((noinline)) void counting_passes(T* a, T* tmp, size_t n, unsigned depth,
                                               unsigned bits) {
  const unsigned high = bits / 2, low = bits - high;
  uint32_t high_counts[1u << (kCountingBits / 2)] = {}, low_counts[1u << (kCountingBits / 2)] = {};
  for (size_t i = 0; i < n; ++i) {
    const uint64_t key = key_of(a[i]);
    if (high) ++high_counts[digit(key, depth, high)];
    ++low_counts[digit(key, depth + high, low)];
  }
  running_sums(low_counts, size_t{1} << low);
  for (size_t i = 0; i < n; ++i) tmp[low_counts[digit(key_of(a[i]), depth + high, low)]++] = a[i];
  if (high) {
    running_sums(high_counts, size_t{1} << high);
    for (size_t i = 0; i < n; ++i) a[high_counts[digit(key_of(tmp[i]), depth, high)]++] = tmp[i];
  } else {
    memcpy(a, tmp, n * sizeof(T));
  }
}

// Counting passes, and then what still ties is sorted by the bits that follow; depth is less than
// end.
template <class T>
void sort_in_cache(T* a, T* tmp, size_t n, unsigned depth, unsigned end, Stopper* stop) {
  unsigned bits = end - depth;
  if (bits > kCountingBits) {
    bits = 4;
    while (bits < kCountingBits && (size_t{1} << bits) < n * 2) ++bits;
  }
  counting_passes(a, tmp, n, depth, bits);
  depth += bits;
  if (depth >= end) return;
  const uint64_t prefix = top_mask(depth), mask = top_mask(end);
  for (size_t i = 1, start = 0; i <= n; ++i)
    if (i == n || ((key_of(a[i]) ^ key_of(a[start])) & prefix)) {
      const size_t length = i - start;
      if (length > kInsertion)
        sort_range(a + start, tmp + start, length, depth, end, stop);
      else if (length > 1)
        insertion_sort(a + start, length, mask);
      start = i;
    }
}

// Bits that all keys share, counted from the most significant; fewer are looked at when the call is
// to end early.
template <class T>
inline unsigned shared_bits(const T* a, size_t n, Stopper* stop) {
  uint64_t difference = 0;
  const uint64_t first = key_of(a[0]);
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) difference |= key_of(a[i]) ^ first;
  });
  return difference ? first_bit(difference) : 64;
}

constexpr size_t kDigits = size_t{1} << kScatterBits;

// starts[d] becomes the number of keys with a digit below d; false when all keys have the same
// digit.
inline bool scatter_starts(size_t* starts, size_t n) {
  for (size_t d = 0; d < kDigits; ++d) {
    if (starts[d + 1] == n) return false;
    starts[d + 1] += starts[d];
  }
  return true;
}

// Scatters a to tmp by the first digit in which not all keys agree. Returns the first bit behind
// that digit; 0, with nothing done, when the keys agree on all bits before end or the call is to
// end early.
template <class T>
__attribute__((noinline)) unsigned scatter(const T* a, T* tmp, size_t n, unsigned depth,
                                           unsigned end, Stopper* stop) {
  size_t starts[kDigits + 1];
  unsigned bits;
  for (;;) {
    if (depth >= end) return 0;
    bits = end - depth < kScatterBits ? end - depth : kScatterBits;
    memset(starts, 0, sizeof starts);
    if (!in_steps(n, stop, [&](size_t from, size_t to) {
          for (size_t i = from; i < to; ++i) ++starts[digit(key_of(a[i]), depth, bits) + 1];
        }))
      return 0;
    if (scatter_starts(starts, n)) break;
    depth = shared_bits(a, n, stop);
  }
  return in_steps(n, stop,
                  [&](size_t from, size_t to) {
                    for (size_t i = from; i < to; ++i)
                      tmp[starts[digit(key_of(a[i]), depth, bits)]++] = a[i];
                  })
             ? depth + bits
             : 0;
}

// The end of the run of keys from start on that agree on the bits of mask, in [start + 1, n]; quick
// when it is near start + guess.
template <class T>
inline size_t run_end(const T* a, size_t start, size_t n, size_t guess, uint64_t mask) {
  const uint64_t first = key_of(a[start]) & mask;
  size_t low = start, high = n, step = guess + 1;  // low is in the run, high is not
  while (step < high - low && (key_of(a[low + step]) & mask) == first) {
    low += step;
    step *= 2;
  }
  if (step < high - low) high = low + step;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if ((key_of(a[middle]) & mask) == first)
      low = middle;
    else
      high = middle;
  }
  return high;
}

// Moves a[0, n) to out, sorted by the bits [depth, end) of the keys, of which there are at most
// kScatterBits.
template <class T>
__attribute__((noinline)) void counting_pass(const T* a, T* out, size_t n, unsigned depth,
                                             unsigned end, Stopper* stop) {
  size_t starts[kDigits + 1] = {};
  const unsigned bits = end - depth;
  const bool counted = in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) ++starts[digit(key_of(a[i]), depth, bits) + 1];
  });
  if (!counted) return;
  for (size_t d = 0; d < size_t{1} << bits; ++d) starts[d + 1] += starts[d];
  in_steps(n, stop, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) out[starts[digit(key_of(a[i]), depth, bits)]++] = a[i];
  });
}

// Moves a[0, n) to out, sorted by the bits [depth, end) of the keys; the bits before depth are
// equal.
template <class T>
inline void sort_into(T* a, T* out, size_t n, unsigned depth, unsigned end, Stopper* stop) {
  if (depth < end && end - depth <= kScatterBits && n > kInsertion)
    return counting_pass(a, out, n, depth, end, stop);
  // The place in out is free: sort in a with it as scratch, then move it over while it is in the
  // cache.
  if (n > 1) sort_range(a, out, n, depth, end, stop);
  in_steps(n, stop,
           [&](size_t from, size_t to) { memcpy(out + from, a + from, (to - from) * sizeof(T)); });
}

template <class T>
void sort_range(T* a, T* tmp, size_t n, unsigned depth, unsigned end, Stopper* stop) {
  if (depth >= end) return;  // there is no bit to sort by: a prefix of 0 bits
  if (n <= kInsertion) return insertion_sort(a, n, top_mask(end));
  if (n <= cache_items<T>()) return sort_in_cache(a, tmp, n, depth, end, stop);
  depth = scatter(a, tmp, n, depth, end, stop);
  if (depth == 0) return;
  const uint64_t mask = top_mask(depth);
  for (size_t start = 0; start < n;) {
    const size_t length = run_end(tmp, start, n, n >> kScatterBits, mask) - start;
    sort_into(tmp + start, a + start, length, depth, end, stop);
    if (stop && stop->ended) return;
    start += length;
  }
}

// Merges the sorted [from, middle) and [middle, to), stable, into out.
template <class T>
inline void merge_runs(const T* a, size_t from, size_t middle, size_t to, T* out) {
  size_t left = from, right = middle;
  for (size_t i = from; i < to; ++i)
    out[i] = left < middle && (right == to || !(row_in(a[right]) < row_in(a[left]))) ? a[left++]
                                                                                     : a[right++];
}

// Sorts rows that share their leading words by the words behind them, stable, by merges; tmp has
// the same room.
template <class T>
void sort_ties(T* a, T* tmp, size_t n, Stopper* stop) {
  T *from = a, *to = tmp;
  for (size_t run = 1; run < n; run *= 2) {
    for (size_t i = 0; i < n; i += 2 * run) {
      const size_t middle = n - i < run ? n : i + run, end = n - middle < run ? n : middle + run;
      if (should_stop(stop, end - i)) return;
      merge_runs(from, i, middle, end, to);
    }
    T* const other = from;
    from = to;
    to = other;
  }
  if (from != a) memcpy(static_cast<void*>(a), from, n * sizeof(T));
}

// Sorts by the leading bits bits, of which the first depth are equal: by the digits of the leading
// words, and those that tie by the rest if it counts.
template <class T>
void sort_rows(T* a, T* tmp, size_t n, unsigned depth, unsigned bits, Stopper* stop) {
  sort_range(a, tmp, n, depth, bits < 64 ? bits : 64, stop);
  if (bits <= 64) return;
  for (size_t start = 0, i = 1; i <= n; ++i) {
    if (i % kStep == 0 && should_stop(stop, kStep)) return;
    if (i < n && key_of(a[i]) == key_of(a[start])) continue;
    if (i - start > 1) sort_ties(a + start, tmp + start, i - start, stop);
    start = i;
  }
}

template <class W>
void sort_keys(uint64_t* keys, uint64_t* tmp, size_t n, unsigned bits, Stopper* stop) {
  using Row = typename W::Row;
  sort_rows(rows<Row>(keys), rows<Row>(tmp), n, 0, bits, stop);
}

template <class W>
void sort_pairs(uint64_t* pairs, uint64_t* tmp, size_t n, Stopper* stop) {
  using RowPair = Pair<typename W::Row>;
  sort_rows(reinterpret_cast<RowPair*>(pairs), reinterpret_cast<RowPair*>(tmp), n, 0,
            W::kWords * 64, stop);
}

template <unsigned Words>
inline void permute_rows(const Permutation& p, const Wide<Words>* in, Wide<Words>* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = apply(p, in[i]);
}

inline void permute_rows(const Permutation& p, const uint64_t* in, uint64_t* out, size_t n) {
  memset(out, 0, n * sizeof *out);
  for (size_t start = 0; start < n; start += 512) {
    const size_t stop = start + 512 < n ? start + 512 : n;
    for (unsigned k = 0; k < p.count; ++k) {
      const uint64_t mask = p.mask[k];
      const unsigned left = p.rotate[k], right = (64 - left) & 63;
      for (size_t i = start; i < stop; ++i) {
        const uint64_t part = in[i] & mask;
        out[i] |= (part << left) | (part >> right);
      }
    }
  }
}

template <class W>
void permute(const Permutation& p, const uint64_t* in, uint64_t* out, size_t n) {
  using Row = typename W::Row;
  permute_rows(p, rows<Row>(in), rows<Row>(out), n);
}

// Leading bits that a permutation leaves where they are.
inline unsigned kept_bits(const Permutation& p) {
  uint64_t moved = ~uint64_t{0};
  for (unsigned k = 0; k < p.count; ++k)
    if (p.rotate[k] == 0) moved &= ~p.mask[k];
  return moved ? first_bit(moved) : 64;
}

constexpr size_t kPieceRows = 256;  // that are permuted at once
constexpr unsigned kPartBits =
    15;  // 2^15 keys, and as much for sorting them, leave room in the second-level cache
constexpr unsigned kMaxDigitBits = 11;
constexpr size_t kLine = 8;  // keys in a line of the cache
static_assert(kScatterWords == kLine + 1);

// Calls part(permuted keys, how many) for all keys, in order; false when the call is to end early.
template <class Row, class Part>
inline bool permuted_pieces(const Permutation& p, const Row* in, size_t n, Stopper* stop,
                            Part part) {
  Row piece[kPieceRows];
  for (size_t start = 0; start < n; start += kPieceRows) {
    const size_t length = n - start < kPieceRows ? n - start : kPieceRows;
    if (should_stop(stop, length)) return false;
    permute_rows(p, in + start, piece, length);
    part(piece, length);
  }
  return true;
}

inline void store_line(uint64_t* to, const uint64_t* line) {
#if defined(__SSE2__)
  // Past the cache, which has no room for all lines: none is read before it is written.
  for (unsigned i = 0; i < kLine; i += 2)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(line + i)));
#else
  memcpy(to, line, kLine * sizeof *to);
#endif
}

// Writes keys to their parts of out by whole lines, which gather in memory: one for each part, and
// behind them where each part goes on. Others may write to out at the same time, but not between
// the start and the end of a part.
class LineScatter {
 public:
  // starts has the place of the first key of each part; out has room for `room` keys.
  LineScatter(uint64_t* out, size_t room, uint64_t* memory, const uint64_t* starts, size_t parts)
      : offset_(reinterpret_cast<uintptr_t>(out) / sizeof *out % kLine),
        end_(room + offset_),
        out_(out),
        lines_(memory +
               (kLine - reinterpret_cast<uintptr_t>(memory) / sizeof *memory % kLine) % kLine),
        at_(lines_ + parts * kLine),
        starts_(starts),
        parts_(parts) {
    for (size_t d = 0; d < parts; ++d) at_[d] = starts[d] + offset_;
  }
  void put(uint64_t key, size_t d) {
    const uint64_t at = at_[d]++;
    lines_[d * kLine + at % kLine] = key;
    if (at % kLine == kLine - 1) full(d, at + 1 - kLine);
  }
  // False when a part had no room.
  bool finish() {
    bool fits = true;
    for (size_t d = 0; d < parts_; ++d) {
      fits &= at_[d] <= end_;
      if (fits) store(d, at_[d] / kLine * kLine, at_[d]);
    }
#if defined(__SSE2__)
    _mm_sfence();
#endif
    return fits;
  }

 private:
  void full(size_t d, uint64_t line) {
    if (FPSTORE_UNLIKELY(line + kLine > end_)) return;
    if (FPSTORE_UNLIKELY(line < starts_[d] + offset_))
      store(d, line, line + kLine);
    else
      store_line(out_ + (line - offset_), lines_ + d * kLine);
  }
  // The front of a line may belong to the part before.
  void store(size_t d, uint64_t from, uint64_t to) {
    const uint64_t start = starts_[d] + offset_;
    for (uint64_t at = from > start ? from : start; at < to; ++at)
      out_[at - offset_] = lines_[d * kLine + at % kLine];
  }

  const size_t offset_, end_;  // keys between the start of a line and out, and its end
  uint64_t* const out_;
  uint64_t* const lines_;
  uint64_t* const at_;
  const uint64_t* const starts_;
  const size_t parts_;
};

// Permuted keys to parts of out by their leading digit; the parts are then sorted where they are,
// with the front of tmp as scratch.
inline void scatter_sort(const Permutation& p, const uint64_t* in, size_t n,
                         const SortBuffers& room, unsigned bits, Stopper* stop) {
  unsigned digit_bits = kScatterBits;
  while (digit_bits < kMaxDigitBits && n >> digit_bits > size_t{1} << kPartBits) ++digit_bits;
  if (digit_bits > bits) digit_bits = bits;
  const size_t digits = size_t{1} << digit_bits;
  // In tmp, which is free: where the parts begin, and what the scatter needs.
  uint64_t* const starts = room.tmp;
  memset(starts, 0, (digits + 1) * sizeof *starts);
  const bool counted = permuted_pieces(p, in, n, stop, [&](const uint64_t* piece, size_t length) {
    for (size_t i = 0; i < length; ++i) ++starts[digit(piece[i], 0, digit_bits) + 1];
  });
  if (!counted) return;
  for (size_t d = 0; d < digits; ++d) starts[d + 1] += starts[d];
  LineScatter scatter(room.out, n, starts + digits + 1, starts, digits);
  const bool scattered = permuted_pieces(p, in, n, stop, [&](const uint64_t* piece, size_t length) {
    for (size_t i = 0; i < length; ++i) scatter.put(piece[i], digit(piece[i], 0, digit_bits));
  });
  if (!scattered) return;
  scatter.finish();
  for (size_t start = 0; start < n;) {
    const size_t length =
        run_end(room.out, start, n, n >> digit_bits, top_mask(digit_bits)) - start;
    if (should_stop(stop, length)) return;
    sort_range(room.out + start, room.tmp, length, digit_bits, bits, stop);
    start += length;
  }
}

// The same where leading bits stay where they are: keys that differ in the first cut of these are
// in order.
inline void sort_parts(const Permutation& p, const uint64_t* in, size_t n, const SortBuffers& room,
                       unsigned cut, unsigned bits, Stopper* stop) {
  for (size_t start = 0; start < n;) {
    const size_t length = run_end(in, start, n, n >> cut, top_mask(cut)) - start;
    if (!in_steps(length, stop, [&](size_t from, size_t to) {
          permute_rows(p, in + start + from, room.out + start + from, to - from);
        }))
      return;
    sort_range(room.out + start, room.tmp, length, cut, bits, stop);
    start += length;
  }
}

// The permuted keys of a sorted set, sorted by their leading bits bits (stable). Of tmp only as
// much is used as needed: its pages may be new.
template <class W>
void permute_sort(const Permutation& p, const uint64_t* keys, size_t n, const SortBuffers& room,
                  unsigned bits, Stopper* stop) {
  using Row = typename W::Row;
  const Row* const in = rows<Row>(keys);
  Row *const out = rows<Row>(room.out), *const tmp = rows<Row>(room.tmp);
  if constexpr (!W::kWide)
    if (n > cache_items<Row>()) {
      unsigned cut = 0;
      while (n >> cut > cache_items<Row>() / 4) ++cut;
      const unsigned kept = kept_bits(p);
      return cut <= kept && cut <= bits ? sort_parts(p, in, n, room, cut, bits, stop)
                                        : scatter_sort(p, in, n, room, bits, stop);
    }
  if (in_steps(n, stop,
               [&](size_t from, size_t to) { permute_rows(p, in + from, out + from, to - from); }))
    sort_rows(out, tmp, n, 0, bits, stop);
}

template <class W>
void count_permuted(const Permutation& p, const uint64_t* keys, size_t n, unsigned bits,
                    uint64_t* counts, Stopper* stop) {
  if constexpr (W::kWide) {
    const Permutation lead = leading_part(p, bits);
    in_steps(n, stop, [&](size_t from, size_t to) {
      for (size_t i = from; i < to; ++i)
        ++counts[leading_bits(gather(lead, keys + i * W::kWords), bits)];
    });
  } else {
    permuted_pieces(p, keys, n, stop, [&](const uint64_t* piece, size_t length) {
      for (size_t i = 0; i < length; ++i) ++counts[leading_bits(piece[i], bits)];
    });
  }
}

template <class W>
bool scatter_permuted(const Permutation& p, const uint64_t* keys, size_t n, const ScatterOutput& to,
                      Stopper* stop) {
  using Row = typename W::Row;
  const auto each = [&](const auto& put) {
    permuted_pieces(p, rows<Row>(keys), n, stop, [&](const Row* piece, size_t length) {
      for (size_t i = 0; i < length; ++i) {
        const size_t d = leading_bits(key_of(piece[i]), to.bits) - to.first;
        if (FPSTORE_LIKELY(d < to.parts)) put(piece[i], d);
      }
    });
  };
  if constexpr (W::kWide) {
    memcpy(to.memory, to.starts, to.parts * sizeof *to.starts);
    bool fits = true;
    each([&](const Row& row, size_t d) {
      const uint64_t at = to.memory[d]++;
      if (FPSTORE_LIKELY(at < to.room))
        rows<Row>(to.out)[at] = row;
      else
        fits = false;
    });
    return fits;
  } else {
    LineScatter scatter(to.out, to.room, to.memory, to.starts, to.parts);
    each([&](uint64_t key, size_t d) { scatter.put(key, d); });
    return scatter.finish();
  }
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
