// The features of texts as sets, to compare them exactly.
#pragma once
#include "text/hash_ranks.hpp"
#include "text/rows.hpp"

namespace fpstore {

// Appends the features of each row of texts, as the lower halves of their hashes, ascending, each
// once. Row i of the results, of three words, has where its features end, a digest of them, and how
// many of the first ones are its sample: those below 2^32 options.samples / n, for n features.
// False when memory runs out.
bool feature_sets(const Texts& texts, const TextOptions& options, const TextResults& results,
                  std::vector<uint32_t>* features);

// The same with whole hashes, without digests and samples: if results have two words for each row,
// the second is how many units
// the text has, or a feature if that is less; of several texts of a row, it is that of the last
// one.
bool feature_hashes(const Texts& texts, const TextOptions& options, const TextResults& results,
                    std::vector<uint64_t>* features);

// The same with the ranks of features among known hashes, without those that are not known. A row
// without any is empty.
bool feature_ranks(const Texts& texts, const TextOptions& options, const TextResults& results,
                   const HashRanks& known, std::vector<uint32_t>* ranks);

// Set s is at [lims[s], lims[s + 1]) of the features.
struct SetsOfFeatures {
  const uint32_t* features;
  const uint64_t* lims;
  uint64_t size(uint64_t set) const { return lims[set + 1] - lims[set]; }
};

}  // namespace fpstore
