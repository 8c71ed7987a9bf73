#include "text/simhash.hpp"

#include "text/counters.hpp"

namespace fpstore {

namespace {

// Word w of the hash of a feature, from 1 on.
uint64_t feature_word(uint64_t hash, unsigned w) { return xxh::avalanche(hash + w * xxh::kP1); }

// A fingerprint of the texts of a row.
class Simhash {
 public:
  explicit Simhash(const TextOptions& options) : options_(options), features_(options) {}

  void add(const NormalText& text, unsigned field) {
    if (!options_.plain())
      features_.each_weighed(text, field,
                             [&](uint64_t h, uint64_t weight) { add_weighed(h, weight); });
    else if (options_.counting == Counting::distinct)
      features_.each_distinct(text, [&](const uint64_t* h, size_t n) { count(h, n); });
    else
      features_.each(text, [&](const uint64_t* h, size_t n) { count(h, n); });
  }

  bool finish(uint64_t* row) {
    for (unsigned w = 0; w < options_.row_words; ++w) {
      row[w] = options_.plain() ? plain_[w].majority(added_) : weighed_[w].take_majority();
      if (options_.plain()) plain_[w].clear();
    }
    const bool known = added_ != 0;
    added_ = 0;
    return known;
  }

 private:
  void count(const uint64_t* hashes, size_t n) {
    added_ += n;
    plain_[0].add(hashes, n);
    for (unsigned w = 1; w < options_.row_words; ++w) {
      for (size_t i = 0; i < n; ++i) words_[i] = feature_word(hashes[i], w);
      plain_[w].add(words_, n);
    }
  }
  void add_weighed(uint64_t hash, uint64_t weight) {
    added_ += weight;
    uint64_t words[kMaxRowWords];
    feature_row(hash, options_.row_words, words);
    for (unsigned w = 0; w < options_.row_words; ++w) weighed_[w].add(words[w], weight);
  }

  const TextOptions& options_;
  Features features_;
  BitCounter plain_[kMaxRowWords];
  WeightCounter weighed_[kMaxRowWords];
  uint64_t added_ = 0;  // weight in the row under way
  uint64_t words_[kMaxCounted];
};

}  // namespace

void feature_row(uint64_t hash, unsigned row_words, uint64_t* row) {
  row[0] = hash;
  for (unsigned w = 1; w < row_words; ++w) row[w] = feature_word(hash, w);
}

uint64_t feature_hash(FeatureHash hash, const uint8_t* data, size_t size, uint64_t seed) {
  return hash == FeatureHash::xxh64 ? xxh64(data, size, seed) : Fnv1a{}(data, size);
}

bool simhash_texts(const Texts& texts, const TextOptions& options, const TextResults& results) {
  return make_rows<Simhash>(texts, options, results);
}

void simhash_weighted(const uint64_t* rows, const double* weights, const uint8_t* batched,
                      uint64_t n, unsigned row_words, uint64_t* result) {
  double sums[64 * kMaxRowWords] = {}, batch[64 * kMaxRowWords] = {}, total = 0;
  const unsigned bits = 64 * row_words;
  uint64_t held = 0;
  const auto end_batch = [&] {
    for (unsigned b = 0; b < bits; ++b) sums[b] += batch[b], batch[b] = 0;
    held = 0;
  };
  for (uint64_t i = 0; i < n; ++i) {
    total += weights[i];
    double* into = batched[i] ? batch : sums;
    for (unsigned b = 0; b < bits; ++b)
      into[b] += (rows[i * row_words + b / 64] >> b % 64) & 1 ? weights[i] : 0;
    if (batched[i] && ++held == kBatchedFeatures) end_batch();
  }
  end_batch();
  for (unsigned w = 0; w < row_words; ++w) {
    result[w] = 0;
    for (unsigned b = 0; b < 64; ++b)
      if (sums[w * 64 + b] > total / 2) result[w] |= uint64_t{1} << b;
  }
}

}  // namespace fpstore
