// One-bit MinHash: of each of many hash functions one bit of the least value (Li and Koenig, WWW
// 2010), of sets or of weighted ones.
#pragma once
#include "text/rows.hpp"

namespace fpstore {

// Bit i of a fingerprint, from the most significant, is a bit of the least value that the hash
// function i has on the features; with weights, of the sample that Ioffe's consistent sampling
// takes (ICDM 2010). Two sets whose Jaccard similarity is J, of weights the sum of the minima
// divided by the sum of the maxima, differ in each bit with a probability of (1 - J) / 2. False
// when memory runs out. Behind the fingerprint stands a key for each band of successive functions,
// which depends on their least values, or samples, alone: two sets have the same key with the
// probability J^band_size. No band has a function behind the first kMaxFunctions.
bool minhash_texts(const Texts& texts, const TextOptions& options, const TextResults& results);

// The same of n features, at least one, by their hashes, which are distinct; a set without weights;
// weights are above 0. Of the options, the seed and the words count.
void minhash_features(const uint64_t* hashes, const double* weights, size_t n,
                      const TextOptions& options, uint64_t* row);

}  // namespace fpstore
