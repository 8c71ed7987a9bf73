#include "columns/view.hpp"

namespace fpstore {

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
  make_permutation(h.permutation, h.kind == ColumnKind::copies ? h.width : h.bucket_bits + kTagBits, &v->forward, &v->inverse);
}

}  // namespace fpstore
