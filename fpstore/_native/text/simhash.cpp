#include "text/simhash.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "format/xxh64.hpp"
#include "text/counters.hpp"
#include "text/hash_counts.hpp"

namespace fpstore {

namespace {

// XXH64 of features, which have few bytes, of numbers that no processor foresees: the last ones are taken without a branch, from memory
// of which 8 bytes behind may be read.
struct Xxh64 {
  uint64_t seed;
  uint64_t operator()(const uint8_t* p, size_t size) const {
    using namespace xxh;
    if (size >= 32) return xxh64(p, size, seed);
    uint64_t h = seed + kP5 + size;
    for (const uint8_t* const end = p + (size & 24); p < end; p += 8) h = rotl(h ^ lane(0, load64(p)), 27) * kP1 + kP4;
    const uint64_t four = rotl(h ^ (load32(p) * kP1), 23) * kP2 + kP3;
    h = size & 4 ? four : h;
    p += size & 4;
    for (size_t i = 0; i < 3; ++i) {
      const uint64_t next = rotl(h ^ (p[i] * kP5), 11) * kP1;
      h = i < (size & 3) ? next : h;
    }
    return avalanche(h);
  }
};

// Fowler, Noll and Vo's hash of 64 bits, variant 1a.
struct Fnv1a {
  uint64_t operator()(const uint8_t* data, size_t size) const {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash;
  }
};

// The start of the word behind the one at p. Needs a space behind every word, and reads at most 7 bytes past it.
struct NextWord {
  static constexpr size_t kGap = 1;  // bytes between successive units
  const uint8_t* operator()(const uint8_t* p) const {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    for (;; p += 8) {
      const uint64_t spaces_are_zero = load64(p) ^ (kOnes * ' ');
      const uint64_t found = (spaces_are_zero - kOnes) & ~spaces_are_zero & (kOnes << 7);  // exact in its lowest byte
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

// Fingerprints of rows of texts, one after the other, with one set of options.
class Simhash {
 public:
  explicit Simhash(const SimhashOptions& options) : options_(options), weights_(options.weights) {}

  // The fingerprint of one text. False when it has no features.
  bool make(const NormalText& text, uint64_t* row) {
    if (options_.weights.count || options_.weights.other != 1 || options_.counting == Counting::log) {
      add(text, 1);
      return finish(row);
    }
    uint64_t added = 0;
    const auto count = [&](uint64_t h) {
      ++added;
      if (options_.row_words == 1) return plain_[0].add(h);
      uint64_t words[kMostRowWords];
      feature_row(h, options_.row_words, words);
      for (unsigned w = 0; w < options_.row_words; ++w) plain_[w].add(words[w]);
    };
    if (options_.counting == Counting::distinct) {
      seen_.clear(text.size() / kFeatureBytes);
      each_feature(text, [&](uint64_t h) {
        if (seen_.insert(h)) count(h);
      });
    } else {
      each_feature(text, count);
    }
    for (unsigned w = 0; w < options_.row_words; ++w) {
      row[w] = plain_[w].majority(added);
      plain_[w].clear();
    }
    return added != 0;
  }

  // Adds the features of one text of a row, which weigh `factor` times as much as they would alone.
  void add(const NormalText& text, uint32_t factor) {
    seen_.clear(text.size() / kFeatureBytes);
    each_feature(text, [&](uint64_t h) { seen_.insert(h); });
    seen_.each([&](uint64_t h, uint64_t count) { add_weighted(h, weight_of(h, count) * factor); });
  }

  // The fingerprint of what was added, which is forgotten. False when it has no features.
  bool finish(uint64_t* row) {
    if (!weighed_) return false;
    for (unsigned w = 0; w < options_.row_words; ++w) row[w] = weighted_[w].take_majority();
    weighed_ = 0;
    return true;
  }

 private:
  // Calls use(hash) for every feature of a text.
  template <class Use>
  void each_feature(const NormalText& text, Use use) {
    if (text.size() == 0) return;
    if (options_.words)
      each_unit(text, NextWord{}, use);
    else
      each_unit(text, NextChar{}, use);
  }

  template <class Next, class Use>
  void each_unit(const NormalText& text, Next next, Use use) {
    if (options_.hash == FeatureHash::xxh64)
      each_hash(text, next, Xxh64{options_.seed}, use);
    else
      each_hash(text, next, Fnv1a{}, use);
  }

  template <class Next, class Hash, class Use>
  void each_hash(const NormalText& text, Next next, Hash hash, Use use) {
    if (Next::kGap && options_.stop_count)
      each_with_stop(text, next, hash, use);
    else
      each_shingle(text, next, hash, use);
  }

  uint64_t weight_of(uint64_t hash, uint64_t count) const {
    const uint64_t times = options_.counting == Counting::distinct ? 1
                           : options_.counting == Counting::log    ? 64 - first_bit(count)
                                                                   : count;
    return std::min(times, kMostTimes) * weights_.of(hash);
  }
  void add_weighted(uint64_t hash, uint64_t weight) {
    weighed_ += weight;
    uint64_t words[kMostRowWords];
    feature_row(hash, options_.row_words, words);
    for (unsigned w = 0; w < options_.row_words; ++w) weighted_[w].add(words[w], weight);
  }

  // Calls use(hash) for every shingle of a text, which is not empty.
  template <class Next, class Hash, class Use>
  void each_shingle(const NormalText& text, Next next, Hash hash, Use use) {
    const uint8_t* const end = text.data() + text.size() + Next::kGap;
    const uint8_t* back = text.data();   // the shingle's first unit
    const uint8_t* front = text.data();  // the unit behind its last
    for (unsigned i = 0; i < options_.length && front < end; ++i) front = next(front);
    use(hash(back, static_cast<size_t>(front - back) - Next::kGap));
    while (front < end) {
      if (!Next::kGap && end - front >= 8 && !((load64(back) | load64(front)) & kHighBits)) {
        // Characters of one byte each leave and enter: the next shingles have as many bytes.
        const size_t size = static_cast<size_t>(front - back);
        for (unsigned i = 0; i < 8; ++i) use(hash(++back, size));
        front += 8;
        continue;
      }
      back = next(back);
      front = next(front);
      use(hash(back, static_cast<size_t>(front - back) - Next::kGap));
    }
  }

  // The same for the shingles that have a stop word.
  template <class Next, class Hash, class Use>
  void each_with_stop(const NormalText& text, Next next, Hash hash, Use use) {
    const uint8_t* const end = text.data() + text.size() + Next::kGap;
    const uint8_t *back = text.data(), *front = back, *stop = nullptr;  // of the last stop word
    unsigned units = 0;
    while (front < end) {
      const uint8_t* const behind = next(front);
      if (std::binary_search(options_.stops, options_.stops + options_.stop_count,
                             hash(front, static_cast<size_t>(behind - front) - Next::kGap)))
        stop = front;
      front = behind;
      if (++units > options_.length) back = next(back);
      if ((units >= options_.length || front >= end) && stop >= back && stop)
        use(hash(back, static_cast<size_t>(front - back) - Next::kGap));
    }
  }

  static constexpr size_t kFeatureBytes = 8;  // of a text, for one different feature: at first
  static constexpr uint64_t kMostTimes = uint64_t{1} << 24;

  const SimhashOptions& options_;
  WeightTable weights_;
  HashCounts seen_;
  BitCounter plain_[kMostRowWords];
  WeightCounter weighted_[kMostRowWords];
  uint64_t weighed_ = 0;  // in the row under way
};

}  // namespace

void feature_row(uint64_t hash, unsigned row_words, uint64_t* row) {
  row[0] = hash;
  for (unsigned w = 1; w < row_words; ++w) row[w] = xxh::avalanche(hash + w * xxh::kP1);
}

uint64_t feature_hash(FeatureHash hash, const uint8_t* data, size_t size, uint64_t seed) {
  return hash == FeatureHash::xxh64 ? xxh64(data, size, seed) : Fnv1a{}(data, size);
}

bool simhash_texts(const CharMap& map, const uint8_t* text, const uint64_t* offsets, uint64_t n, const SimhashOptions& options,
                   uint64_t* rows, TextState* states, UnknownForms* unknown) {
  try {
    const auto simhash = std::make_unique<Simhash>(options);  // larger than a stack may be
    NormalText normal;
    for (uint64_t i = 0; i < n; ++i) {
      uint64_t* const row = rows + i * options.row_words;
      std::fill_n(row, options.row_words, 0);
      const size_t before = unknown->lines.size();
      for (unsigned f = 0; f < options.field_count; ++f) {
        const uint64_t at = i * options.field_count + f;
        normal.set(map, text, offsets[at], offsets[at + 1], unknown);
        if (unknown->lines.size() == before && options.field_count > 1) simhash->add(normal, options.field_weights[f]);
      }
      const bool readable = unknown->lines.size() == before;
      const bool known = options.field_count > 1 ? simhash->finish(row) : readable && simhash->make(normal, row);
      states[i] = !readable ? TextState::unknown : known ? TextState::known : TextState::empty;
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void simhash_weighted(const uint64_t* rows, const double* weights, const uint8_t* batched, uint64_t n, unsigned row_words, uint64_t* result) {
  double sums[64 * kMostRowWords] = {}, batch[64 * kMostRowWords] = {}, total = 0;
  const unsigned bits = 64 * row_words;
  uint64_t held = 0;
  const auto end_batch = [&] {
    for (unsigned b = 0; b < bits; ++b) sums[b] += batch[b], batch[b] = 0;
    held = 0;
  };
  for (uint64_t i = 0; i < n; ++i) {
    total += weights[i];
    double* into = batched[i] ? batch : sums;
    for (unsigned b = 0; b < bits; ++b) into[b] += (rows[i * row_words + b / 64] >> b % 64) & 1 ? weights[i] : 0;
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
