#include "text/minhash.hpp"

#include "isa/kernels.hpp"
#include "text/logarithm.hpp"

namespace fpstore {

namespace {

// The n-th random word of a seed.
uint64_t random_word(uint64_t seed, uint64_t n) {
  return xxh::avalanche(xxh::avalanche(seed + xxh::kP2) + n * xxh::kP1);
}

// Sets bit i of a row, from the most significant.
void set_bit(uint64_t* row, unsigned i, uint64_t bit) { row[i / 64] |= bit << (63 - i % 64); }

// How many functions a fingerprint and the keys of bands need.
unsigned functions_of(const TextOptions& options) {
  const unsigned bits = 64 * options.row_words,
                 banded = (options.band_first + options.bands * options.band_size + 63) / 64 * 64;
  return bits < banded ? banded : bits;
}

// Writes the keys of bands behind a fingerprint, by what each function has found.
template <class Found>
void write_keys(const TextOptions& options, uint64_t* row, Found found) {
  for (unsigned band = 0, i = options.band_first; band < options.bands; ++band) {
    uint64_t key = band;
    for (const unsigned end = i + options.band_size; i < end; ++i)
      key = xxh::avalanche(key * xxh::kP1 + found(i));
    row[options.row_words + band] = key;
  }
}

// The last steps of MurmurHash3 for 32 bits; the highest bit of the result.
uint64_t bit_of(uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85EBCA6Bu;
  value = (value ^ (value >> 13)) * 0xC2B2AE35u;
  return value >> 31;
}

// The least values of functions on a set.
class SetMinima {
 public:
  explicit SetMinima(const TextOptions& options)
      : options_(options), functions_{factors_, terms_, functions_of(options)} {
    for (unsigned i = 0; i < functions_.count; ++i) {
      const uint64_t word = random_word(options.seed, i);
      factors_[i] = static_cast<uint32_t>(word) | 1;
      terms_[i] = static_cast<uint32_t>(word >> 32);
    }
    clear();
  }
  // At most kMaxCounted at a time.
  void add(const uint64_t* hashes, size_t n) {
    // Functions of 32 bits need numbers without a pattern, which FNV-1a of similar features has.
    for (size_t i = 0; i < n; ++i) numbers_[i] = static_cast<uint32_t>(xxh::avalanche(hashes[i]));
    lower_(functions_, numbers_, n, minima_);
    known_ |= n != 0;
  }
  bool finish(uint64_t* row) {
    const bool known = known_;
    std::fill_n(row, options_.words_in_all(), 0);
    for (unsigned i = 0; known && i < 64 * options_.row_words; ++i)
      set_bit(row, i, bit_of(minima_[i]));
    if (known) write_keys(options_, row, [&](unsigned i) { return minima_[i]; });
    clear();
    return known;
  }

 private:
  void clear() {
    std::fill_n(minima_, functions_.count, UINT32_MAX);
    known_ = false;
  }

  uint32_t factors_[kMaxFunctions], terms_[kMaxFunctions], minima_[kMaxFunctions];
  uint32_t numbers_[kMaxCounted];
  bool known_ = false;
  const TextOptions options_;
  HashFunctions functions_;
  LowerMinima lower_ = text_kernels().lower_minima;
};

// The samples that functions take of a weighted set. Ioffe, *Improved consistent sampling, weighted
// Minhash and L1 sketching*, ICDM 2010, figure 1, with logarithms of what stands there.
class WeightedMinima {
 public:
  explicit WeightedMinima(const TextOptions& options)
      : options_(options), count_(functions_of(options)) {
    clear();
  }

  void add(uint64_t hash, double weight) {
    const double log_weight = natural_log(weight);
    known_ = true;
    for (unsigned i = 0; i < count_; ++i) {
      const uint64_t numbers = random_word(options_.seed ^ hash, i);
      const double r = gamma(numbers, 1), beta = uniform(numbers, 5);
      const double t = whole(log_weight / r + beta);
      const double log_a = natural_log(gamma(numbers, 3)) - r * (t - beta) - r;
      if (log_a < least_[i].log_a || (log_a == least_[i].log_a && hash < least_[i].hash))
        least_[i] = {log_a, t, hash};
    }
  }
  bool finish(uint64_t* row) {
    const bool known = known_;
    const auto sample = [&](unsigned i) {
      return random_word(
          least_[i].hash ^ xxh::avalanche(static_cast<uint64_t>(static_cast<int64_t>(least_[i].t))),
          i);
    };
    std::fill_n(row, options_.words_in_all(), 0);
    for (unsigned i = 0; known && i < 64 * options_.row_words; ++i)
      set_bit(row, i, sample(i) >> 63);
    if (known) write_keys(options_, row, sample);
    clear();
    return known;
  }

 private:
  struct Sample {
    double log_a, t;
    uint64_t hash;
  };

  // Numbers between 0 and 1, both excluded.
  static double uniform(uint64_t numbers, unsigned n) {
    return (static_cast<double>(random_word(numbers, n) >> 12) + 0.5) * 0x1p-52;
  }
  // Of the gamma distribution of shape 2.
  static double gamma(uint64_t numbers, unsigned n) {
    return -natural_log(uniform(numbers, n) * uniform(numbers, n + 1));
  }
  // The largest whole number up to x, which is kept where it fits into 64 bits.
  static double whole(double x) {
    constexpr double kMost = 0x1p62;
    if (!(x > -kMost && x < kMost)) return x < 0 ? -kMost : kMost;
    const auto cut = static_cast<double>(static_cast<int64_t>(x));
    return cut > x ? cut - 1 : cut;
  }
  void clear() {
    std::fill_n(least_, count_, Sample{__builtin_huge_val(), 0, UINT64_MAX});
    known_ = false;
  }

  const TextOptions options_;
  unsigned count_;
  bool known_ = false;
  Sample least_[kMaxFunctions];
};

// A fingerprint of the texts of a row, as a set.
class SetMaker {
 public:
  explicit SetMaker(const TextOptions& options) : features_(options), minima_(options) {}
  void add(const NormalText& text, unsigned) {
    features_.each(text, [&](const uint64_t* hashes, size_t n) { minima_.add(hashes, n); });
  }
  bool finish(uint64_t* row) { return minima_.finish(row); }

 private:
  Features features_;
  SetMinima minima_;
};

// The same with weights. Those of a feature in several fields add up.
class WeightedMaker {
 public:
  explicit WeightedMaker(const TextOptions& options)
      : options_(options), features_(options), minima_(options) {}
  void add(const NormalText& text, unsigned field) {
    features_.each_weighed(text, field, [&](uint64_t h, uint64_t weight) {
      if (weight) weighed_.push_back({h, weight});
    });
  }
  bool finish(uint64_t* row) {
    if (options_.field_count > 1)
      std::sort(weighed_.begin(), weighed_.end(),
                [](const Weighed& a, const Weighed& b) { return a.hash < b.hash; });
    for (size_t i = 0; i < weighed_.size();) {
      const uint64_t hash = weighed_[i].hash;
      double weight = 0;
      for (; i < weighed_.size() && weighed_[i].hash == hash; ++i)
        weight += static_cast<double>(weighed_[i].weight);
      minima_.add(hash, weight);
    }
    weighed_.clear();
    return minima_.finish(row);
  }

 private:
  struct Weighed {
    uint64_t hash, weight;
  };
  const TextOptions& options_;
  Features features_;
  WeightedMinima minima_;
  std::vector<Weighed> weighed_;
};

}  // namespace

bool minhash_texts(const Texts& texts, const TextOptions& options, const TextResults& results) {
  return options.is_set() ? make_rows<SetMaker>(texts, options, results)
                          : make_rows<WeightedMaker>(texts, options, results);
}

void minhash_features(const uint64_t* hashes, const double* weights, size_t n,
                      const TextOptions& options, uint64_t* row) {
  // Both are larger than a stack may be.
  if (!weights) {
    const auto minima = std::make_unique<SetMinima>(options);
    for (size_t i = 0; i < n; i += kMaxCounted)
      minima->add(hashes + i, std::min(n - i, kMaxCounted));
    minima->finish(row);
  } else {
    const auto minima = std::make_unique<WeightedMinima>(options);
    for (size_t i = 0; i < n; ++i) minima->add(hashes[i], weights[i]);
    minima->finish(row);
  }
}

}  // namespace fpstore
