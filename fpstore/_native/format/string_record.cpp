#include "format/string_record.hpp"

#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr unsigned kBlockHeader = 3;

uint64_t load_bytes(const uint8_t* p, unsigned n) {
  uint64_t value = 0;
  for (unsigned i = 0; i < n; ++i) value |= uint64_t{p[i]} << 8 * i;
  return value;
}

// Reads the header of a frame without checksum and number of a dictionary (RFC 8878, 3.1.1.1);
// returns its size, 0 if it is none or does not say how large the content is.
uint64_t read_frame_header(const uint8_t* frame, uint64_t size, uint64_t* content_bytes) {
  if (size < 5 || load32(frame) != kFrameMagic) return 0;
  const uint8_t descriptor = frame[4];
  constexpr uint8_t kSingleSegment = 0x20, kRefused = 0x0F;  // reserved, checksum, dictionary
  constexpr unsigned kContentSizeBytes[] = {0, 2, 4, 8};
  const bool single_segment = descriptor & kSingleSegment;
  const unsigned size_bytes = descriptor >> 6 ? kContentSizeBytes[descriptor >> 6] : single_segment;
  const uint64_t at = single_segment ? 5 : 6;
  if (size_bytes == 0 || descriptor & kRefused || size < at + size_bytes) return 0;
  *content_bytes = load_bytes(frame + at, size_bytes) + (size_bytes == 2 ? 256 : 0);
  return at + size_bytes;
}

// Whether the blocks of a frame are just so long (RFC 8878, 3.1.1.2).
bool blocks_fill(const uint8_t* blocks, uint64_t size) {
  for (bool last = false; !last;) {
    if (size < kBlockHeader) return false;
    const uint64_t header = load_bytes(blocks, kBlockHeader);
    last = header & 1;
    const uint64_t type = header >> 1 & 3;  // 1: RLE, one byte that is repeated
    const uint64_t taken = kBlockHeader + (type == 1 ? 1 : header >> 3);
    if (size < taken) return false;
    blocks += taken;
    size -= taken;
  }
  return size == 0;
}

}  // namespace

bool open_string_record(const uint8_t* value, uint64_t size, uint64_t seed,
                        uint64_t* content_bytes) {
  if (size < kStringChecksumBytes) return false;
  const uint8_t* const frame = value + kStringChecksumBytes;
  size -= kStringChecksumBytes;
  if (static_cast<uint32_t>(xxh64(frame, size, seed)) != load32(value)) return false;
  const uint64_t header = read_frame_header(frame, size, content_bytes);
  return header && *content_bytes && *content_bytes <= kMaxStringRecordBytes &&
         blocks_fill(frame + header, size - header);
}

bool find_string_ends(const uint8_t* content, uint64_t size, uint64_t count, uint64_t* ends) {
  const uint8_t* p = content;
  const uint8_t* const end = content + size;
  for (uint64_t i = 0; i < count; ++i) {
    p = p == end ? nullptr
                 : static_cast<const uint8_t*>(memchr(p, kSeparator, static_cast<size_t>(end - p)));
    if (!p) return false;
    ends[i] = static_cast<uint64_t>(p++ - content);
  }
  return p == end;
}

}  // namespace fpstore
