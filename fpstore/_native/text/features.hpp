// Features of texts: their shingles, as hashes.
#pragma once
#include <algorithm>

#include "isa/kernels.hpp"
#include "text/hash_counts.hpp"
#include "text/normal.hpp"
#include "text/shingles.hpp"

namespace fpstore {

enum class Counting : uint32_t {
  each,      // the weight of a feature is how often it occurs
  distinct,  // 1
  log,       // how many binary digits that number has
};
enum class FeatureHash : uint32_t { xxh64, fnv1a };

// Weights of features by their hashes, which ascend; others have one weight.
struct FeatureWeights {
  const uint64_t* hashes = nullptr;
  const uint32_t* weights = nullptr;
  size_t count = 0;
  uint32_t other = 1;
};

// How rows of texts become features with weights, and how many words a fingerprint has.
struct TextOptions {
  bool words;       // a shingle is `length` successive words, else `length` successive code points
  unsigned length;  // at least 1
  Counting counting;
  FeatureHash hash;
  uint64_t seed;       // of XXH64
  unsigned row_words;  // of a fingerprint: 1, 2 or 4
  FeatureWeights weights;
  const uint64_t* stops = nullptr;  // ascending hashes of words: if there are any, shingles without
                                    // one of them do not count
  size_t stop_count = 0;
  unsigned field_count = 1;                 // texts of a row
  const uint32_t* field_weights = nullptr;  // for each of them
  unsigned bands = 0;  // of MinHash: a key for each stands behind a fingerprint
  unsigned band_size = 0;
  unsigned band_first = 0;  // the first function of the first band
  uint32_t samples = 0;     // of a set of features: about so many

  // Of a fingerprint, with the keys of bands.
  unsigned words_in_all() const { return row_words + bands; }
  // Whether each feature counts once, in whatever fields.
  bool is_set() const { return !weights.count && counting == Counting::distinct; }
  // Whether all features weigh the same, but for how often each occurs.
  bool plain() const {
    return !weights.count && weights.other == 1 && counting != Counting::log && field_count == 1;
  }
};

constexpr unsigned kMaxRowWords = 4;
constexpr unsigned kMaxLength = (1u << 16) - 1;  // of shingles
constexpr unsigned kMaxFunctions =
    64 * kMaxRowWords + 2048;  // of MinHash, for a fingerprint and for bands
constexpr uint32_t kMaxWeight = (1u << 16) - 1;

// Fowler, Noll and Vo's hash of 64 bits, variant 1a.
struct Fnv1a {
  uint64_t operator()(const uint8_t* data, size_t size) const {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash;
  }
};

// The start of the word behind the one at p. Needs a space behind every word, and reads at most 7
// bytes past it.
struct NextWord {
  static constexpr size_t kGap = 1;  // bytes between successive units
  const uint8_t* operator()(const uint8_t* p) const {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    for (;; p += 8) {
      const uint64_t spaces_are_zero = load64(p) ^ (kOnes * ' ');
      const uint64_t found =
          (spaces_are_zero - kOnes) & ~spaces_are_zero & (kOnes << 7);  // exact in its lowest byte
      if (found) return p + (__builtin_ctzll(found) >> 3) + 1;
    }
  }
};

// The start of the code point behind the one at p, by its first byte.
struct NextChar {
  static constexpr size_t kGap = 0;
  const uint8_t* operator()(const uint8_t* p) const {
    return p + 1 + (*p >= 0xC0) + (*p >= 0xE0) + (*p >= 0xF0);
  }
};

// Weights by hash, with open addressing; at most half full.
class WeightTable {
 public:
  explicit WeightTable(const FeatureWeights& weights) : other_(weights.other) {
    unsigned bits = 1;
    while ((size_t{1} << bits) < weights.count * 2) ++bits;
    slots_.resize(size_t{1} << bits);
    shift_ = 64 - bits;
    for (size_t i = 0; i < weights.count; ++i) {
      size_t at = weights.hashes[i] >> shift_;
      while (slots_[at].weight) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {weights.hashes[i], uint64_t{weights.weights[i]} + 1};
    }
  }
  uint64_t of(uint64_t hash) const {
    for (size_t at = hash >> shift_; slots_[at].weight; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].hash == hash) return slots_[at].weight - 1;
    return other_;
  }

 private:
  struct Slot {
    uint64_t hash = 0, weight = 0;  // one more than it is: none is 0
  };
  std::vector<Slot> slots_;
  unsigned shift_;
  uint64_t other_;
};

// The shingles of texts. A shingle is hashed as the bytes it spans in the normal form, with the
// spaces in it. A text shorter than one shingle is one feature.
class Features {
 public:
  explicit Features(const TextOptions& options)
      : options_(options), weights_(options.weights), starts_(options.length + kBlock) {}

  // Calls use(hashes, number) for the features of a text, many at a time.
  template <class Use>
  void each(const NormalText& text, Use use) {
    if (text.size() == 0) return;
    if (options_.words)
      each_unit<NextWord>(text, use);
    else
      each_unit<NextChar>(text, use);
  }

  // The units of the first feature of a text: fewer than others have if the text is shorter.
  unsigned units_of_one(const NormalText& text) const {
    if (text.size() == 0) return 0;
    return options_.words ? first_units(text, NextWord{}) : first_units(text, NextChar{});
  }

  // The same as each(), each feature once.
  template <class Use>
  void each_distinct(const NormalText& text, Use use) {
    seen_.clear(text.size() / kFeatureBytes);
    each(text, [&](uint64_t* hashes, size_t n) {
      size_t count = 0;
      for (size_t i = 0; i < n; ++i) {
        const uint64_t h = hashes[i];
        if (seen_.insert(h)) hashes[count++] = h;
      }
      use(hashes, count);
    });
  }

  // Calls use(hash, weight) for every feature of a text of a row, each once.
  template <class Use>
  void each_weighed(const NormalText& text, unsigned field, Use use) {
    seen_.clear(text.size() / kFeatureBytes);
    each(text, [&](const uint64_t* hashes, size_t n) {
      for (size_t i = 0; i < n; ++i) seen_.insert(hashes[i]);
    });
    seen_.each([&](uint64_t h, uint64_t count) {
      use(h, weight_of(h, count) * options_.field_weights[field]);
    });
  }

 private:
  uint64_t weight_of(uint64_t hash, uint64_t count) const {
    const uint64_t times = options_.counting == Counting::distinct ? 1
                           : options_.counting == Counting::log    ? 64 - first_bit(count)
                                                                   : count;
    return std::min(times, kMaxTimes) * weights_.of(hash);
  }

  template <class Next>
  unsigned first_units(const NormalText& text, Next next) const {
    const uint8_t* const end = text.data() + text.size() + Next::kGap;
    unsigned units = 0;
    for (const uint8_t* front = text.data(); front < end && units < options_.length;
         front = next(front))
      ++units;
    return units;
  }

  template <class Next, class Use>
  void each_unit(const NormalText& text, Use use) {
    const bool with_stop = Next::kGap && options_.stop_count;
    if (options_.hash == FeatureHash::fnv1a) {
      if (with_stop) return each_with_stop(text, Fnv1a{}, use);
      return each_block<Next>(text, use, [](const Shingles& shingles, size_t n, uint64_t* hashes) {
        for (size_t i = 0; i < n; ++i)
          hashes[i] = Fnv1a{}(shingles.text + shingles.starts[i],
                              static_cast<size_t>(shingles.starts[i + shingles.length] -
                                                  shingles.starts[i] - shingles.gap));
      });
    }
    if (with_stop) return each_with_stop(text, Xxh64{options_.seed}, use);
    each_block<Next>(text, use, [&](const Shingles& shingles, size_t n, uint64_t* hashes) {
      kernels_.hash_shingles(shingles, n, options_.seed, hashes);
    });
  }

  // Calls use(hashes, number) for the shingles of a text, which is not empty, many at a time. The
  // starts of the units of a shingle stay for the next time; behind the last unit is another start.
  template <class Next, class Use, class Hash>
  void each_block(const NormalText& text, Use use, Hash hash) {
    const auto find = Next::kGap ? kernels_.word_starts : kernels_.char_starts;
    UnitSearch search{text.data(), 1, text.size() + 1 + Next::kGap};
    const Shingles shingles{text.data(), starts_.data(), options_.length, Next::kGap};
    size_t count = 1;
    bool is_short = true;  // fewer units than a shingle has
    starts_[0] = 0;
    while (search.at < search.end) {
      count += find(&search, starts_.data() + count, options_.length + kBlock - count);
      if (count <= options_.length) continue;
      const size_t n = count - options_.length;
      hash(shingles, n, hashes_);
      use(hashes_, n);
      std::copy_n(starts_.data() + n, options_.length, starts_.data());
      count = options_.length;
      is_short = false;
    }
    if (!is_short) return;
    starts_[options_.length] = starts_[count - 1];
    hash(shingles, 1, hashes_);
    use(hashes_, 1);
  }

  // The same for the shingles of words that have a stop word.
  template <class Hash, class Use>
  void each_with_stop(const NormalText& text, Hash hash, Use use) {
    const NextWord next;
    const uint8_t* const end = text.data() + text.size() + NextWord::kGap;
    const uint8_t *back = text.data(), *front = back, *stop = nullptr;  // of the last stop word
    unsigned units = 0;
    size_t n = 0;
    while (front < end) {
      const uint8_t* const behind = next(front);
      if (std::binary_search(options_.stops, options_.stops + options_.stop_count,
                             hash(front, static_cast<size_t>(behind - front) - NextWord::kGap)))
        stop = front;
      front = behind;
      if (++units > options_.length) back = next(back);
      if ((units >= options_.length || front >= end) && stop >= back && stop)
        hashes_[n++] = hash(back, static_cast<size_t>(front - back) - NextWord::kGap);
      if (n == kBlock || front >= end) {
        use(hashes_, n);
        n = 0;
      }
    }
  }

  static constexpr size_t kFeatureBytes = 8;  // of a text, for one different feature: at first
  static constexpr uint64_t kMaxTimes = uint64_t{1} << 24;
  static constexpr size_t kBlock = kMaxCounted;  // features at a time

  const TextOptions& options_;
  WeightTable weights_;
  HashCounts seen_;
  const TextKernels& kernels_ = text_kernels();
  std::vector<uint64_t> starts_;
  uint64_t hashes_[kBlock];
};

}  // namespace fpstore
