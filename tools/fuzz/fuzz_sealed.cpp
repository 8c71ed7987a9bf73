// Sealed files: whatever is written in order of the keys, and however the pages are moved out, the
// reader finds it and nothing else; a key out of order changes nothing.
#include <sys/mman.h>
#include <unistd.h>

#include "build/sealed_encode.hpp"
#include "format/lmdb_page.hpp"
#include "format/sealed_file.hpp"
#include "input.hpp"

using namespace fpstore;

namespace {

constexpr uint64_t kMaxValue = 9000;  // three pages

struct Written {
  unsigned words;
  std::vector<uint64_t> rows;
  std::vector<std::vector<uint8_t>> values;
  std::vector<uint8_t> file;
  uint64_t digest, largest;
};

Written write(fuzz::Input* input) {
  Written out;
  out.words = 1u << input->byte() % 3;
  SealedEncoder encoder(out.words);
  out.file.resize(2 * SealedEncoder::kPageBytes);
  const auto move_pages = [&] {
    const size_t at = out.file.size();
    out.file.resize(at + encoder.pending_bytes());
    encoder.move_pages(out.file.data() + at);
  };
  uint64_t row[kMaxWords] = {};
  // Few files are so large that their branches are full: it takes time.
  const size_t most = input->byte() % 16 ? 64 << 10 : 600 << 10;
  size_t bytes = 0;
  while (input->left() && bytes < most) {
    const unsigned count = 1 + input->byte(), word = input->byte() % out.words;
    const uint64_t size = input->word(2) % kMaxValue, step = 1 + input->word(2);
    for (unsigned i = 0; i < count && bytes < most; ++i) {
      row[word] += step;
      std::fill(row + word + 1, row + out.words, 0);
      std::vector<uint8_t> value(size, static_cast<uint8_t>(out.values.size()));
      REQUIRE(encoder.append(row, value.data(), size));
      REQUIRE(!encoder.append(row, value.data(), size));
      out.rows.insert(out.rows.end(), row, row + out.words);
      out.values.push_back(std::move(value));
      bytes += size + 64;
    }
    if (input->byte() & 1) move_pages();
  }
  encoder.finish();
  move_pages();
  REQUIRE(out.file.size() == encoder.used_bytes());
  std::copy(encoder.metadata().begin(), encoder.metadata().end(), out.file.begin());
  out.largest = encoder.largest();
  out.digest = encoder.digest();
  out.file.resize(out.file.size() + lmdb::kPaddingBytes + kMaxValue);
  out.file.insert(out.file.end(), encoder.checksums().begin(), encoder.checksums().end());
  return out;
}

bool equal(const SealedFile::Value& got, const std::vector<uint8_t>& value) {
  return got.data && std::equal(got.data, got.data + got.size, value.begin(), value.end());
}

void check(const Written& written) {
  const int descriptor = memfd_create("sealed", 0);
  const size_t size = written.file.size(), n = written.values.size();
  REQUIRE(::write(descriptor, written.file.data(), size) == static_cast<ssize_t>(size));
  SealedFile file(descriptor, "sealed", written.words, written.largest);
  REQUIRE(file.digest() == written.digest && file.entries() == n);
  std::vector<uint64_t> numbers(n), keys;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t* const row = written.rows.data() + i * written.words;
    numbers[i] = i;
    REQUIRE(equal(file.find(row, SealedFile::kNoNumber), written.values[i]));
    uint64_t above[kMaxWords];
    std::copy(row, row + written.words, above);
    ++above[written.words - 1];
    const bool is_next = i + 1 < n && std::equal(above, above + written.words, row + written.words);
    REQUIRE((file.find(above, SealedFile::kNoNumber).data != nullptr) == is_next);
  }
  file.check_all(nullptr);
  std::vector<SealedFile::Value> many, range;
  file.find_many(written.rows.data(), numbers.data(), n, UINT64_MAX, nullptr, &many);
  const uint64_t first[kMaxWords] = {},
                 last[kMaxWords] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  file.range(first, last, UINT64_MAX, nullptr, &range, &keys);
  REQUIRE(many.size() == n && range.size() == n && keys == written.rows);
  for (size_t i = 0; i < n; ++i)
    REQUIRE(equal(many[i], written.values[i]) && equal(range[i], written.values[i]));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  check(write(&input));
  return 0;
}
