// The ranks of some hashes, for many look-ups of which few find one.
#pragma once
#include <algorithm>
#include <vector>

#include "format/common.hpp"

namespace fpstore {

// Most hashes that are not there meet no bit of a filter, which is the only memory that is read for
// them.
class HashRanks {
 public:
  static constexpr size_t kMost = UINT32_MAX;

  // Takes hashes that ascend, each once, at most kMost. They stay where they are.
  HashRanks(const uint64_t* hashes, size_t count) : hashes_(hashes), count_(count) {
    unsigned bits = kBucketBits + 1;
    while (bits < 32 && (size_t{1} << bits) < count) ++bits;
    filter_shift_ = 64 - bits - kFilterBits;
    bucket_shift_ = 64 - bits + kBucketBits;
    filter_.resize((size_t{1} << (bits + kFilterBits)) / 64);
    starts_.resize((size_t{1} << (bits - kBucketBits)) + 1);
    size_t bucket = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bit = hashes[i] >> filter_shift_;
      filter_[bit / 64] |= uint64_t{1} << (bit % 64);
      for (; bucket <= hashes[i] >> bucket_shift_; ++bucket)
        starts_[bucket] = static_cast<uint32_t>(i);
    }
    for (; bucket < starts_.size(); ++bucket) starts_[bucket] = static_cast<uint32_t>(count);
  }

  size_t size() const { return count_; }

  // Asks for the memory that of() reads for most hashes.
  void fetch(uint64_t hash) const { fetch_line(&filter_[(hash >> filter_shift_) / 64]); }

  // How many hashes are less, if it is one of them; otherwise size().
  size_t of(uint64_t hash) const {
    const uint64_t bit = hash >> filter_shift_;
    if (!(filter_[bit / 64] >> (bit % 64) & 1)) return count_;
    const size_t bucket = hash >> bucket_shift_;
    const uint64_t* const end = hashes_ + starts_[bucket + 1];
    const uint64_t* const found = std::lower_bound(hashes_ + starts_[bucket], end, hash);
    return found < end && *found == hash ? static_cast<size_t>(found - hashes_) : count_;
  }

 private:
  static constexpr unsigned kFilterBits = 4,
                            kBucketBits =
                                3;  // 16 bits of the filter for a hash, 8 hashes for a bucket

  const uint64_t* hashes_;
  size_t count_;
  unsigned filter_shift_, bucket_shift_;
  std::vector<uint64_t> filter_;
  std::vector<uint32_t> starts_;
};

}  // namespace fpstore
