#include "build/filter_encode.hpp"

#include <algorithm>
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

size_t FilterSections::feed(const uint64_t* keys, size_t n) {
  words_.feed(keys, n, words_of(header.width), &bytes_);
  const size_t size = bytes_.size() / kPageBytes * kPageBytes;
  sum(size);
  return size;
}

size_t FilterSections::finish() {
  words_.finish(&bytes_);
  header.word_count = words_.starts().back();
  append(words_.starts());
  bytes_.resize((bytes_.size() + 7) / 8 * 8);
  sum(bytes_.size());
  append(sums_);
  return bytes_.size();
}

void FilterSections::take(size_t size, uint8_t* out) {
  std::copy_n(bytes_.data(), size, out);
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size));
}

template <class T>
void FilterSections::append(const std::vector<T>& values) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T) * values.size());
}

// Adds the checksums of the first bytes, which are whole pages, or the last.
void FilterSections::sum(size_t size) {
  const size_t before = sums_.size();
  sums_.resize(before + (size + kPageBytes - 1) / kPageBytes);
  page_checksums(bytes_.data(), size, filter_seed(header), before, sums_.data() + before);
}

}  // namespace fpstore
