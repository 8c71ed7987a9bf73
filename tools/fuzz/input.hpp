// What the fuzz targets share: taking an input apart, failing loudly, and random complete codes.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "format/huffman.hpp"
#include "format/span.hpp"
#include "format/xxh64.hpp"
#include "isa/kernels.hpp"

namespace fuzz {

[[noreturn]] inline void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: violated: %s\n", file, line, what);
  std::abort();
}
#define REQUIRE(condition)                                        \
  do {                                                            \
    if (!(condition)) fuzz::fail(#condition, __FILE__, __LINE__); \
  } while (0)

// Reads an input from its front; zeros once it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : p_(data), left_(size) {}
  size_t left() const { return left_; }
  uint8_t byte() {
    if (!left_) return 0;
    --left_;
    return *p_++;
  }
  uint64_t word(unsigned bytes = 8) {
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; ++i) x = x << 8 | byte();
    return x;
  }
  // Copies up to n bytes; what the input does not reach is left as it is.
  void fill(uint8_t* to, size_t n) {
    if (n > left_) n = left_;
    if (n) memcpy(to, p_, n);
    p_ += n;
    left_ -= n;
  }

 private:
  const uint8_t* p_;
  size_t left_;
};

// Memory for what the oracles keep during an execution (the containers of std::pmr), given back at
// once: the allocator of the sanitizers is slow. What the kernel reads or writes stays with that
// one, which sees an overrun.
class Arena {
 public:
  Arena() { std::pmr::set_default_resource(&pool()); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { pool().release(); }

 private:
  static std::pmr::monotonic_buffer_resource& pool() {
    constexpr size_t room = size_t{1} << 20;
    static std::pmr::monotonic_buffer_resource* const made =
        new std::pmr::monotonic_buffer_resource(new char[room], room,
                                                std::pmr::new_delete_resource());
    return *made;
  }
};

// A copy in memory of just its size, so that the sanitizer sees what is read behind it.
template <class T>
class ExactCopy {
 public:
  ExactCopy(const T* values, size_t size) : data_(new T[size]), size_(size) {
    std::copy(values, values + size, data_.get());
  }
  const T* get() const { return data_.get(); }
  fpstore::Span<const T> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_;
};
template <class T>
ExactCopy<T> exact(const std::vector<T>& values) {
  return {values.data(), values.size()};
}
inline ExactCopy<uint8_t> exact(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// What is left to chance, not to a byte of the input: the fuzzer would keep such a byte, and all
// that it makes of the input would take as long. One case in 64 is large and one in 8 not small;
// one in 16 runs in every instruction set, the others in one.
enum class Scale { small, medium, large };
class Chance {
 public:
  Chance(const uint8_t* data, size_t size) : word_(fpstore::xxh64(data, size, 0)) {}
  Scale scale() const {
    return word_ % 64 == 0 ? Scale::large : word_ % 64 < 8 ? Scale::medium : Scale::small;
  }
  bool one_in(unsigned n) const { return (word_ >> 32) % n == 0; }
  std::vector<const fpstore::Kernels*> sets(const std::vector<const fpstore::Kernels*>& all,
                                            unsigned every = 16) const {
    if ((word_ >> 8) % every == 0) return all;
    return {all[(word_ >> 16) % all.size()]};
  }

 private:
  uint64_t word_;
};

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  unsigned below(unsigned n) { return static_cast<unsigned>(next() % n); }

 private:
  uint64_t state_;
};

// The instruction sets of this machine, for fingerprints of a width.
inline std::vector<const fpstore::Kernels*> all_kernels(unsigned width) {
  std::vector<const fpstore::Kernels*> sets;
  for (const char* name : fpstore::kSetNames)
    if (const fpstore::KernelSets* set = fpstore::kernels_named(name))
      sets.push_back(width == 32    ? &set->bits_32
                     : width == 64  ? &set->bits_64
                     : width == 128 ? &set->bits_128
                                    : &set->bits_256);
  return sets;
}

// The numbers below n, at most 256, in random order.
inline void shuffle(Random* random, uint8_t* out, unsigned n) {
  for (unsigned i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(i);
  for (unsigned i = n - 1; i > 0; --i) {
    const unsigned j = random->below(i + 1);
    const uint8_t x = out[i];
    out[i] = out[j];
    out[j] = x;
  }
}

// Lengths of a complete code over so many symbols or, with few, over a handful of them: a random
// tree, grown leaf by leaf; the deepest leaf is preferred by bias in 256, which makes long codes.
inline void make_code(uint64_t seed, unsigned bias, bool few, unsigned all,
                      uint8_t lengths[fpstore::kSymbols]) {
  Random random(seed);
  const unsigned symbols = few ? 2 + random.below(5) : all;
  std::vector<uint8_t> leaves{0};
  while (leaves.size() < symbols) {
    size_t at = random.below(static_cast<unsigned>(leaves.size()));
    if (random.below(256) < bias) {
      at = leaves.size();
      for (size_t i = 0; i < leaves.size(); ++i)
        if (leaves[i] < fpstore::kMaxCodeBits && (at == leaves.size() || leaves[i] > leaves[at]))
          at = i;
    }
    if (leaves[at] == fpstore::kMaxCodeBits) continue;
    leaves.push_back(++leaves[at]);
  }
  uint8_t order[fpstore::kSymbols];
  shuffle(&random, order, all);
  memset(lengths, 0, fpstore::kSymbols);
  for (size_t i = 0; i < leaves.size(); ++i) lengths[order[i]] = leaves[i];
}

// The slow canonical decoder: bit by bit, by the number of codes of each length.
struct SlowCode {
  unsigned counts[fpstore::kMaxCodeBits + 1] = {};
  std::vector<uint8_t> symbols;

  explicit SlowCode(const uint8_t lengths[fpstore::kSymbols]) {
    for (unsigned length = 1; length <= fpstore::kMaxCodeBits; ++length)
      for (unsigned s = 0; s < fpstore::kSymbols; ++s)
        if (lengths[s] == length) {
          ++counts[length];
          symbols.push_back(static_cast<uint8_t>(s));
        }
  }
  // One symbol from the bits [*at, end) of p, most significant first; -1 when they end inside a
  // code.
  int decode(const uint8_t* p, uint32_t* at, uint32_t end) const {
    unsigned code = 0, first = 0, place = 0;
    for (unsigned length = 1; length <= fpstore::kMaxCodeBits; ++length) {
      if (*at >= end) return -1;
      code |= p[*at / 8] >> (7 - *at % 8) & 1u;
      ++*at;
      if (code < first + counts[length]) return symbols[place + code - first];
      place += counts[length];
      first = (first + counts[length]) << 1;
      code <<= 1;
    }
    return -1;
  }
};

}  // namespace fuzz
