// What the targets that look at filters share: a filter file in memory.
#pragma once
#include <memory>

#include "build/filter_encode.hpp"
#include "input.hpp"

namespace {

// A file of exactly its length, and what was opened of it.
struct FilterFile {
  fpstore::FilterHeader header;
  std::unique_ptr<uint8_t[]> data;
  uint64_t bytes = 0;
  std::unique_ptr<uint64_t[]> seen;
  fpstore::FilterView view;

  // Of n ascending keys of so many words, fed so many at a time; the header has the shape.
  void make(const uint64_t* keys, size_t n, unsigned words, size_t piece) {
    fpstore::FilterEncoder encoder(header);
    std::vector<uint8_t> filled;
    for (size_t at = 0; at < n; at += piece)
      encoder.feed(keys + at * words, n - at < piece ? n - at : piece, words, &filled);
    encoder.finish(&filled);
    const std::vector<uint32_t>& starts = encoder.starts();
    REQUIRE(starts.size() == (size_t{1} << header.bucket_bits) + 1 && starts.front() == 0 &&
            starts.back() == filled.size() / 8);
    header.word_count = filled.size() / 8;
    header.fingerprint_count = n;
    allocate();
    if (!filled.empty()) memcpy(data.get() + fpstore::kHeaderBytes, filled.data(), filled.size());
    for (size_t i = 0; i < starts.size(); ++i)
      fpstore::store32(data.get() + header.starts_offset + 4 * i, starts[i]);
    sign();
  }
  // A file as the header says, with zeros behind it.
  void allocate() {
    uint8_t first[fpstore::kHeaderBytes];
    fpstore::Fault fault;
    REQUIRE(fpstore::write_filter_header(&header, first, &fault) == fpstore::Status::ok);
    bytes = header.file_bytes;
    data.reset(new uint8_t[bytes]());
    memcpy(data.get(), first, fpstore::kHeaderBytes);
  }
  void sign() {
    fpstore::page_checksums(data.get() + fpstore::kHeaderBytes,
                            header.checksums_offset - fpstore::kHeaderBytes,
                            fpstore::filter_seed(header), 0,
                            reinterpret_cast<uint64_t*>(data.get() + header.checksums_offset));
  }
  bool open() {
    fpstore::Fault fault;
    const fpstore::Status status = fpstore::parse_filter_header(data.get(), bytes, &header, &fault);
    REQUIRE(fault.status == status);
    if (status != fpstore::Status::ok) return false;
    seen.reset(new uint64_t[fpstore::seen_words(fpstore::kHeaderBytes, header.checksums_offset)]());
    fpstore::make_view(header, data.get(), seen.get(), &view);
    return true;
  }
};

// A shape of prefixes of at most so many bits, with few buckets.
inline void draw_filter_shape(unsigned choice, unsigned most_bits, fpstore::FilterHeader* header) {
  fuzz::Random random(choice);
  header->prefix_bits =
      static_cast<uint16_t>(1 + random.below(std::min(most_bits, fpstore::kMaxFilterBits)));
  const unsigned least = header->prefix_bits > fpstore::kMaxFilterRestBits
                             ? header->prefix_bits - fpstore::kMaxFilterRestBits
                             : 0;
  const unsigned most = std::max(least, std::min<unsigned>(header->prefix_bits, 11));
  header->bucket_bits = static_cast<uint16_t>(least + random.below(most - least + 1));
  header->bits_per_prefix = static_cast<uint16_t>(
      random.below(4) ? 4 + random.below(9) : 1 + random.below(fpstore::kMaxBitsPerPrefix));
}

}  // namespace
