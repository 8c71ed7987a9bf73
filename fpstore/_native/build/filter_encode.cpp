#include "build/filter_encode.hpp"

#include <new>

namespace fpstore {

void FilterEncoder::feed(const uint64_t* keys, size_t n, unsigned words,
                         std::vector<uint8_t>* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t prefix = keys[i * words] >> (64 - prefix_bits_);
    if (!pending_.empty() && pending_.back() == prefix) continue;
    while (starts_.size() <= prefix >> rest_bits_) close_bucket(out);
    pending_.push_back(prefix);
  }
}

void FilterEncoder::finish(std::vector<uint8_t>* out) {
  while (starts_.size() <= bucket_count_) close_bucket(out);
}

void FilterEncoder::close_bucket(std::vector<uint8_t>* out) {
  const uint64_t start = starts_.back();
  uint64_t words = (pending_.size() * bits_per_prefix_ + 32) / 64;
  if (words == 0 && !pending_.empty()) words = 1;
  if (start + words > UINT32_MAX) throw std::bad_alloc();
  const size_t at = out->size();
  out->resize(at + 8 * words);
  for (const uint64_t prefix : pending_) {
    uint8_t* const word =
        out->data() + at +
        8 * word_of(0, words, prefix & ((uint64_t{1} << rest_bits_) - 1), rest_bits_);
    store64(word, load64(word) | filter_mask(prefix));
  }
  pending_.clear();
  starts_.push_back(static_cast<uint32_t>(start + words));
}

}  // namespace fpstore
