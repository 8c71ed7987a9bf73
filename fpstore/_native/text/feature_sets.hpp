// The features of texts as sets, to compare them exactly.
#pragma once
#include "text/rows.hpp"

namespace fpstore {

// Appends the features of each row of texts, as the lower halves of their hashes, ascending, each once; row i of the results is where
// its features end. False when memory runs out.
bool feature_sets(const Texts& texts, const TextOptions& options, const TextResults& results, std::vector<uint32_t>* features);

// The Jaccard similarities of n pairs of sets, by their numbers; set s is at [lims[s], lims[s + 1]) of the features. Of two empty sets: 1.
void jaccard_similarities(const uint32_t* features, const uint64_t* lims, const uint64_t* a, const uint64_t* b, size_t n, double* out);

}  // namespace fpstore
