// Charikar's simhash (STOC 2002) of texts: features, their hashes, and the signs of the sums of
// weighted bits.
#pragma once
#include "text/rows.hpp"

namespace fpstore {

// Bit i of a fingerprint is set when features whose hashes have it weigh more than half of all;
// those of a field weigh as many times more as its weight says, and the weights of a feature in
// several fields add up. False when memory runs out.
bool simhash_texts(const Texts& texts, const TextOptions& options, const TextResults& results);

// The words of a feature's hash, from its first: the others are mixed from it.
void feature_row(uint64_t hash, unsigned row_words, uint64_t* row);
uint64_t feature_hash(FeatureHash hash, const uint8_t* data, size_t size, uint64_t seed);

// Bit i of the result is set if the rows with the bit weigh more than half of all. Weights are
// added in the order of the rows; those that are batched are added up among themselves, and to the
// others when a batch is full, or at the end.
constexpr uint64_t kBatchedFeatures = 200;
void simhash_weighted(const uint64_t* rows, const double* weights, const uint8_t* batched,
                      uint64_t n, unsigned row_words, uint64_t* result);

}  // namespace fpstore
