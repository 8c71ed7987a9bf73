// Records of strings: whatever the bytes, open_string_record stays inside them and takes whole
// frames only; find_string_ends finds what a plain search finds.
#include <memory>
#include <vector>

#include "format/string_record.hpp"
#include "format/xxh64.hpp"
#include "input.hpp"

using namespace fpstore;

namespace {

std::vector<uint8_t> sealed(const std::vector<uint8_t>& frame, uint64_t seed) {
  std::vector<uint8_t> value(kStringChecksumBytes);
  store32(value.data(), static_cast<uint32_t>(xxh64(frame.data(), frame.size(), seed)));
  value.insert(value.end(), frame.begin(), frame.end());
  return value;
}

// In memory of just that size.
bool opens(const std::vector<uint8_t>& value, uint64_t seed, uint64_t* content) {
  const std::unique_ptr<uint8_t[]> data(new uint8_t[value.size()]);
  std::copy(value.begin(), value.end(), data.get());
  return open_string_record(data.get(), value.size(), seed, content);
}

void open_bytes(fuzz::Input input) {
  const uint64_t seed = input.word();
  std::vector<uint8_t> frame{0x28, 0xB5, 0x2F, 0xFD};
  if (input.byte() & 1) frame.clear();
  const size_t before = frame.size();
  frame.resize(before + input.left());
  input.fill(frame.data() + before, frame.size() - before);
  uint64_t content;
  if (opens(sealed(frame, seed), seed, &content))
    REQUIRE(content && content <= kMaxStringRecordBytes);
}

void append(std::vector<uint8_t>* out, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out->push_back(static_cast<uint8_t>(value >> 8 * i));
}

// A frame put together by the rules of the format; what is in its blocks does not matter.
void open_frame(fuzz::Input input) {
  const uint64_t seed = input.word();
  const unsigned flag = input.byte() % 4, dictionary = input.byte() % 4;
  const bool single = input.byte() & 1, checksum = input.byte() & 1;
  constexpr unsigned kDictionaryBytes[] = {0, 1, 2, 4};
  const unsigned size_bytes = flag ? 1u << flag : single;
  const uint64_t content = 1 + input.word(3) % (size_bytes == 1   ? 255
                                                : size_bytes == 2 ? 65535
                                                                  : kMaxStringRecordBytes);
  std::vector<uint8_t> frame{0x28, 0xB5, 0x2F, 0xFD};
  append(&frame, flag << 6 | single << 5 | checksum << 2 | dictionary, 1);
  if (!single) append(&frame, input.byte(), 1);
  append(&frame, input.word(), kDictionaryBytes[dictionary]);
  append(&frame, content - (size_bytes == 2 && content >= 256 ? 256 : 0), size_bytes);
  const uint64_t expected = size_bytes == 2 && content < 256 ? content + 256 : content;
  for (unsigned blocks = input.byte() % 4;; --blocks) {
    const unsigned type = input.byte() % 3, size = input.byte();
    append(&frame, uint64_t{size} << 3 | type << 1 | (blocks == 0), 3);
    frame.resize(frame.size() + (type == 1 ? 1 : size));
    if (!blocks) break;
  }
  append(&frame, 0, checksum ? 4 : 0);
  uint64_t found = 0;
  const bool right = size_bytes != 0 && !checksum && dictionary == 0;
  REQUIRE(opens(sealed(frame, seed), seed, &found) == right);
  REQUIRE(!right || found == expected);
  std::vector<uint8_t> other = frame;
  other.push_back(0);
  REQUIRE(!opens(sealed(other, seed), seed, &found));
  other.resize(frame.size() - 1);
  REQUIRE(!opens(sealed(other, seed), seed, &found));
  REQUIRE(!opens(sealed(frame, seed), seed + 1, &found));
}

void find_ends(fuzz::Input input) {
  const uint64_t count = input.byte() % 40;
  const size_t size = input.left();
  const std::unique_ptr<uint8_t[]> content(new uint8_t[size]);
  input.fill(content.get(), size);
  std::vector<uint64_t> expected;
  for (size_t i = 0; i < size; ++i) {
    if (content[i] % 4 == 3) content[i] = kSeparator;
    if (content[i] == kSeparator) expected.push_back(i);
  }
  const bool right = expected.size() == count && (size == 0 || content[size - 1] == kSeparator);
  const std::unique_ptr<uint64_t[]> ends(new uint64_t[count]);
  REQUIRE(find_string_ends(content.get(), size, count, ends.get()) == right);
  for (uint64_t i = 0; right && i < count; ++i) REQUIRE(ends[i] == expected[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 3) {
    case 0:
      open_bytes(input);
      break;
    case 1:
      open_frame(input);
      break;
    default:
      find_ends(input);
  }
  return 0;
}
