// Records of strings: a checksum, then one zstandard frame of strings that are each followed by a
// separator (docs/format.md, "Strings"). The frames are decompressed elsewhere.
#pragma once
#include "format/common.hpp"

namespace fpstore {

constexpr uint64_t kStringChecksumBytes = 4;
constexpr uint8_t kSeparator = 0xFF;  // occurs in no UTF-8
constexpr uint64_t kMaxStringRecordBytes =
    (uint64_t{1} << 16) * 256 + 256;  // decompressed: so much is allocated

// Whether a value has the right checksum, and one whole frame that says how many bytes it
// decompresses to: one or more.
bool open_string_record(const uint8_t* value, uint64_t size, uint64_t seed,
                        uint64_t* content_bytes);

// Finds where the strings of a decompressed record end: ends has count places. False if it does not
// have exactly count strings.
bool find_string_ends(const uint8_t* content, uint64_t size, uint64_t count, uint64_t* ends);

}  // namespace fpstore
