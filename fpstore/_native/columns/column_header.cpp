#include "columns/view.hpp"

#include "format/header_fields.hpp"

namespace fpstore {

namespace {

constexpr uint8_t kMagic[8] = {'F', 'P', 'S', 'T', 'C', 'O', 'L', 'S'};
static_assert(kFieldBytes<ColumnHeader> == 80);

// Where a section begins when the one before it ends at x: its room, then the next multiple of 64.
uint64_t behind(uint64_t x) { return (x + kSectionRoom + 63) & ~uint64_t{63}; }

void layout(ColumnHeader* h) {
  const uint64_t entry_bytes = h->kind == ColumnKind::rows ? 8 * words_of(h->width) : 2;
  h->directory_offset = kHeaderBytes;
  h->tags_offset = behind(h->directory_offset + ((uint64_t{1} << h->bucket_bits) + 1) * 4);
  h->rest_offset = behind(h->tags_offset + h->count * entry_bytes);
  h->checksums_offset = behind(h->rest_offset + h->count * rest_bytes(*h));
  h->file_bytes = h->checksums_offset + page_count(*h) * 8;
}

// Rows are in the order of the fingerprints themselves.
bool has_right_permutation(const ColumnHeader& h) {
  if (!is_padded_permutation(h.permutation, h.width)) return false;
  for (unsigned i = 0; h.kind == ColumnKind::rows && i < h.width; ++i)
    if (h.permutation[i] != i) return false;
  return true;
}

// Whether the fields from which all else follows are within the limits of the format.
Status check_fields(const ColumnHeader& h, Fault* fault) {
  if (h.flags != 0) return fail(fault, Status::unknown_flags, 0, h.flags);
  if (!is_width(h.width)) return fail(fault, Status::unknown_width, 64, h.width);
  const auto field = [fault](uint64_t expected, uint64_t got) {
    return fail(fault, Status::bad_header_field, expected, got);
  };
  const unsigned kind = static_cast<unsigned>(h.kind);
  if (kind > 2 || (h.kind == ColumnKind::copies) != (h.width <= 64)) return field(2, kind);
  if (h.table >= h.table_count) return field(h.table_count, h.table);
  if (h.bucket_bits < kMinBucketBits || h.bucket_bits > kMaxBucketBits)
    return field(kMaxBucketBits, h.bucket_bits);
  const bool rows = h.kind == ColumnKind::rows;
  if (h.tag_bits > (rows ? 0 : kTagBits) || h.bucket_bits + h.tag_bits > h.width)
    return field(kTagBits, h.tag_bits);
  if (h.allowance > (rows ? 0 : h.bucket_bits + 1)) return field(h.bucket_bits + 1u, h.allowance);
  if (h.count >> 32) return field(UINT32_MAX, h.count);
  if (!rows && h.bucket_bits + kTagBits + rest_bits_for(h) > 64) return field(64, h.bucket_bits);
  if (!has_right_permutation(h)) return fail(fault, Status::bad_permutation, 0, 0);
  return Status::ok;
}

}  // namespace

unsigned rest_bits_for(const ColumnHeader& h) {
  if (h.kind == ColumnKind::rows) return 0;
  if (h.kind == ColumnKind::copies)
    return h.width > h.bucket_bits + kTagBits ? h.width - h.bucket_bits - kTagBits : 0;
  return h.count > 1 ? 64 - first_bit(h.count - 1) : 0;
}

Status parse_column_header(const uint8_t* data, uint64_t file_bytes, ColumnHeader* h,
                           Fault* fault) {
  uint8_t p[kHeaderBytes];
  FPSTORE_TRY(copy_header(data, file_bytes, kMagic, p, fault));
  read_fields(p, h);
  h->checksum = load64(p + kChecksumAt);
  FPSTORE_TRY(check_fields(*h, fault));
  ColumnHeader expected = *h;
  expected.rest_bits = static_cast<uint16_t>(rest_bits_for(*h));
  layout(&expected);
  FPSTORE_TRY(check_layout(*h, expected, file_bytes, fault));
  return check_padding(p, kFieldsAt + kFieldBytes<ColumnHeader>, 0, fault);
}

Status write_column_header(ColumnHeader* h, uint8_t* p, Fault* fault) {
  *fault = Fault{};
  FPSTORE_TRY(check_fields(*h, fault));
  h->rest_bits = static_cast<uint16_t>(rest_bits_for(*h));
  layout(h);
  write_fields(*h, kMagic, p);
  h->checksum = seal_header(p);
  return Status::ok;
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
  v->pages =
      Pages{data, data + h.checksums_offset, seen, kHeaderBytes, h.checksums_offset, h.checksum};
  make_permutation(h.permutation, h.kind == ColumnKind::copies ? h.width : h.bucket_bits + kTagBits,
                   &v->forward, &v->inverse);
}

}  // namespace fpstore
