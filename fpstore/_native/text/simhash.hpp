// Charikar's simhash (STOC 2002) of texts: features, their hashes, and the signs of the sums of weighted bits.
#pragma once
#include "text/normal.hpp"

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

struct SimhashOptions {
  bool words;       // a shingle is `length` successive words, else `length` successive code points
  unsigned length;  // at least 1
  Counting counting;
  FeatureHash hash;
  uint64_t seed;       // of XXH64
  unsigned row_words;  // of a fingerprint: 1, 2 or 4
  FeatureWeights weights;
  const uint64_t* stops = nullptr;  // ascending hashes of words: if there are any, shingles without one of them do not count
  size_t stop_count = 0;
  unsigned field_count = 1;  // texts of a row
  const uint32_t* field_weights = nullptr;  // for each of them, if there are several
};

constexpr unsigned kMostRowWords = 4;
constexpr uint32_t kMostWeight = (1u << 16) - 1;

// What became of a row of texts.
enum class TextState : uint8_t { known, empty, unknown };

// Fingerprints of n rows, as row_words words each, and what became of each row. A row has field_count texts, one after the other:
// text i is at [offsets[i], offsets[i + 1]). A row without features is empty, one with lines of
// unknown form is unknown: others have to make it. With missing pages the results are of no use.
//
// A shingle is hashed as the bytes it spans in the normal form, with the spaces in it. A text shorter than one shingle is one
// feature. Bit i of a fingerprint is set when features whose hashes have it weigh more than half of all; those of a field weigh as
// many times more as its weight says, and the weights of a feature in several fields add up. Works in memory of the longest text
// and its different shingles. False when memory runs out.
bool simhash_texts(const CharMap& map, const uint8_t* text, const uint64_t* offsets, uint64_t n, const SimhashOptions& options,
                   uint64_t* rows, TextState* states, UnknownForms* unknown);

// The words of a feature's hash, from its first: the others are mixed from it.
void feature_row(uint64_t hash, unsigned row_words, uint64_t* row);
uint64_t feature_hash(FeatureHash hash, const uint8_t* data, size_t size, uint64_t seed);

// Bit i of the result is set if the rows with the bit weigh more than half of all. Weights are added in the order of the rows; those
// that are batched are added up among themselves, and to the others when a batch is full, or at the end.
constexpr uint64_t kBatchedFeatures = 200;
void simhash_weighted(const uint64_t* rows, const double* weights, const uint8_t* batched, uint64_t n, unsigned row_words, uint64_t* result);

}  // namespace fpstore
