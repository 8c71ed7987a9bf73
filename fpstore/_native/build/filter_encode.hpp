// Writes the filter of a table beside it: the words of buckets, in the order of the entries, and
// the other sections of the file.
#pragma once
#include <vector>

#include "format/filter.hpp"

namespace fpstore {

class FilterEncoder {
 public:
  // Takes prefix_bits, bucket_bits and bits_per_prefix from the header.
  explicit FilterEncoder(const FilterHeader& header)
      : prefix_bits_(header.prefix_bits),
        rest_bits_(header.prefix_bits - header.bucket_bits),
        bits_per_prefix_(header.bits_per_prefix),
        bucket_count_(uint64_t{1} << header.bucket_bits) {
    starts_.reserve(bucket_count_ + 1);
    starts_.push_back(0);
  }

  // Takes n ascending keys of `words` words each. Appends to out the words of the buckets that
  // these keys complete.
  void feed(const uint64_t* keys, size_t n, unsigned words, std::vector<uint8_t>* out);
  // Appends what is left.
  void finish(std::vector<uint8_t>* out);

  // Of the buckets that are complete: the first word of each, and the end of the last.
  const std::vector<uint32_t>& starts() const { return starts_; }

 private:
  void close_bucket(std::vector<uint8_t>* out);

  unsigned prefix_bits_, rest_bits_, bits_per_prefix_;
  uint64_t bucket_count_;
  std::vector<uint64_t> pending_;  // the distinct prefixes of the bucket that is open
  std::vector<uint32_t> starts_;
};

// The bytes of a filter file behind its header, in order: the words, the first word of each bucket
// and the end of the last, padded to eight bytes, and the checksums of the pages.
class FilterSections {
 public:
  FilterHeader header;  // finish() sets the count of words

  explicit FilterSections(const FilterHeader& shape) : header(shape), words_(shape) {}

  // Takes ascending keys; the number of bytes that are complete, which are whole pages.
  size_t feed(const uint64_t* keys, size_t n);
  // The number of bytes that are left.
  size_t finish();
  // Takes the first of these bytes out.
  void take(size_t size, uint8_t* out);

 private:
  template <class T>
  void append(const std::vector<T>& values);
  void sum(size_t size);

  FilterEncoder words_;
  std::vector<uint8_t> bytes_;  // from the first that was not taken
  std::vector<uint64_t> sums_;  // of the pages that are complete
};

}  // namespace fpstore
