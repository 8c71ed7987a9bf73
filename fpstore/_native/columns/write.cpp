#include "columns/column_header.hpp"

namespace fpstore {

size_t cut_keys(const ColumnHeader& h, const uint64_t* keys, size_t n, ColumnFeed* feed,
                uint32_t* bucket_counts, uint8_t* tags, uint8_t* rests) {
  const unsigned bytes = rest_bytes(h), head = h.bucket_bits + kTagBits;
  const uint64_t below = ~top_mask(h.kind == ColumnKind::copies ? h.width : head + h.rest_bits);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t key = keys[i];
    if ((feed->any && key <= feed->last[0]) || (key & below)) return i;
    feed->last[0] = key;
    feed->any = true;
    ++bucket_counts[key >> (64 - h.bucket_bits)];
    store16(tags + 2 * i, tag_of(key, h.bucket_bits));
    const uint64_t rest = h.rest_bits ? key << head >> (64 - h.rest_bits) : 0;
    for (unsigned b = 0; b < bytes; ++b) rests[bytes * i + b] = static_cast<uint8_t>(rest >> 8 * b);
  }
  return n;
}

size_t count_rows(const ColumnHeader& h, const uint64_t* rows, size_t n, ColumnFeed* feed,
                  uint32_t* bucket_counts) {
  const unsigned words = words_of(h.width);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t* const row = rows + words * i;
    bool ascends = !feed->any;
    for (unsigned w = 0; w < words && !ascends; ++w) {
      if (row[w] < feed->last[w]) break;
      ascends = row[w] > feed->last[w];
    }
    if (!ascends) return i;
    memcpy(feed->last, row, 8 * words);
    feed->any = true;
    ++bucket_counts[row[0] >> (64 - h.bucket_bits)];
  }
  return n;
}

}  // namespace fpstore
