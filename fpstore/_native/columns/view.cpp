#include "columns/view.hpp"

namespace fpstore {

void make_terms(const uint8_t* source, unsigned bits, Terms* terms) {
  terms->count = 0;
  for (unsigned word = 0; word < kMaxWords; ++word) {
    uint64_t by_rotation[64] = {};
    for (unsigned i = 0; i < bits; ++i)
      if (source[i] / 64 == word) by_rotation[(source[i] - i) & 63] |= uint64_t{1} << (63 - source[i] % 64);
    for (unsigned r = 0; r < 64; ++r) {
      if (!by_rotation[r]) continue;
      terms->word[terms->count] = static_cast<uint8_t>(word);
      terms->rotate[terms->count] = static_cast<uint8_t>(r);
      terms->mask[terms->count++] = by_rotation[r];
    }
  }
}

void make_view(const ColumnHeader& h, const uint8_t* data, uint64_t* seen, ColumnView* v) {
  v->directory = data + h.directory_offset;
  v->tags = data + h.tags_offset;
  v->rest = data + h.rest_offset;
  v->directory_at = h.directory_offset;
  v->tags_at = h.tags_offset;
  v->rest_at = h.rest_offset;
  v->count = h.count;
  v->words = words_of(h.width);
  v->bucket_bits = h.bucket_bits;
  v->rest_bytes = rest_bytes(h);
  v->rest_mask = (uint64_t{1} << h.rest_bits) - 1;
  // Without a rest nothing is shifted, and a shift by 64 would not be defined.
  v->rest_shift = h.rest_bits ? 64 - kTagBits - h.bucket_bits - h.rest_bits : 0;
  v->tag_mask = static_cast<uint16_t>(0xFFFFu << (kTagBits - h.tag_bits));
  v->rows = h.kind == ColumnKind::rows;
  v->pages = Pages{data, data + h.checksums_offset, seen, kHeaderBytes, h.checksums_offset, h.checksum};
  const unsigned head = h.bucket_bits + kTagBits;
  make_terms(h.permutation, h.kind == ColumnKind::copies ? h.width : head, &v->forward);
  v->inverse.count = 0;
  if (h.kind != ColumnKind::copies) return;
  uint8_t back[64] = {};
  for (unsigned i = 0; i < h.width; ++i) back[h.permutation[i]] = static_cast<uint8_t>(i);
  make_terms(back, h.width, &v->inverse);
}

}  // namespace fpstore
