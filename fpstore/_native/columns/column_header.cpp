#include "columns/column_header.hpp"

#include "format/header_fields.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr uint8_t kMagic[8] = {'F', 'P', 'S', 'T', 'C', 'O', 'L', 'S'};
constexpr unsigned kReservedAt = 88;

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
  if (!is_permutation(h.permutation, h.width)) return false;
  for (unsigned i = 0; h.kind == ColumnKind::rows && i < h.width; ++i)
    if (h.permutation[i] != i) return false;
  return true;
}

// Whether the fields from which all else follows are within the limits of the format.
Status check_fields(const ColumnHeader& h, Fault* fault) {
  if (h.flags != 0) return fail(fault, Status::unknown_flags, 0, h.flags);
  if (!is_width(h.width)) return fail(fault, Status::unknown_width, 64, h.width);
  const auto field = [fault](uint64_t expected, uint64_t got) { return fail(fault, Status::bad_header_field, expected, got); };
  const unsigned kind = static_cast<unsigned>(h.kind);
  if (kind > 2 || (h.kind == ColumnKind::copies) != (h.width <= 64)) return field(2, kind);
  if (h.table >= h.table_count) return field(h.table_count, h.table);
  if (h.bucket_bits < kMinBucketBits || h.bucket_bits > kMaxBucketBits) return field(kMaxBucketBits, h.bucket_bits);
  const bool rows = h.kind == ColumnKind::rows;
  if (h.tag_bits > (rows ? 0 : kTagBits) || h.bucket_bits + h.tag_bits > h.width) return field(kTagBits, h.tag_bits);
  if (h.allowance > (rows ? 0 : h.bucket_bits + 1)) return field(h.bucket_bits + 1u, h.allowance);
  if (h.count >> 32) return field(UINT32_MAX, h.count);
  if (!rows && h.bucket_bits + kTagBits + rest_bits_for(h) > 64) return field(64, h.bucket_bits);
  if (!has_right_permutation(h)) return fail(fault, Status::bad_permutation, 0, 0);
  return Status::ok;
}

void read_fields(const uint8_t* p, ColumnHeader* h) {
  h->version = load32(p + 8);
  h->flags = load32(p + 12);
  h->width = load16(p + 16);
  h->kind = static_cast<ColumnKind>(load16(p + 18));
  h->table = load16(p + 20);
  h->table_count = load16(p + 22);
  h->bucket_bits = load16(p + 24);
  h->tag_bits = load16(p + 26);
  h->allowance = load16(p + 28);
  h->rest_bits = load16(p + 30);
  h->count = load64(p + 32);
  h->directory_offset = load64(p + 40);
  h->tags_offset = load64(p + 48);
  h->rest_offset = load64(p + 56);
  h->checksums_offset = load64(p + 64);
  h->file_bytes = load64(p + 72);
  h->set_digest = load64(p + 80);
  memcpy(h->permutation, p + kPermutationAt, kMaxWidth);
  h->checksum = load64(p + kChecksumAt);
}

}  // namespace

unsigned rest_bits_for(const ColumnHeader& h) {
  if (h.kind == ColumnKind::rows) return 0;
  if (h.kind == ColumnKind::copies) return h.width > h.bucket_bits + kTagBits ? h.width - h.bucket_bits - kTagBits : 0;
  return h.count > 1 ? 64 - first_bit(h.count - 1) : 0;
}

Status parse_column_header(const uint8_t* data, uint64_t file_bytes, ColumnHeader* h, Fault* fault) {
  uint8_t p[kHeaderBytes];
  if (copy_header(data, file_bytes, kMagic, p, fault) != Status::ok) return fault->status;
  read_fields(p, h);
  if (check_fields(*h, fault) != Status::ok) return fault->status;
  ColumnHeader expected = *h;
  expected.rest_bits = static_cast<uint16_t>(rest_bits_for(*h));
  layout(&expected);
  if (h->rest_bits != expected.rest_bits) return fail(fault, Status::bad_header_field, expected.rest_bits, h->rest_bits);
  if (h->directory_offset != expected.directory_offset || h->tags_offset != expected.tags_offset ||
      h->rest_offset != expected.rest_offset || h->checksums_offset != expected.checksums_offset ||
      h->file_bytes != expected.file_bytes)
    return fail(fault, Status::bad_header_field, expected.file_bytes, h->file_bytes);
  if (h->file_bytes != file_bytes) return fail(fault, Status::bad_file_size, h->file_bytes, file_bytes);
  for (unsigned i = kReservedAt; i < kChecksumAt; ++i)
    if ((i < kPermutationAt || i >= kPermutationAt + kMaxWidth) && p[i] != 0) return fail(fault, Status::bad_padding, 0, i);
  return Status::ok;
}

Status write_column_header(ColumnHeader* h, uint8_t* p, Fault* fault) {
  *fault = Fault{};
  if (check_fields(*h, fault) != Status::ok) return fault->status;
  h->rest_bits = static_cast<uint16_t>(rest_bits_for(*h));
  layout(h);
  memset(p, 0, kHeaderBytes);
  memcpy(p, kMagic, 8);
  store32(p + 8, h->version);
  store32(p + 12, h->flags);
  store16(p + 16, h->width);
  store16(p + 18, static_cast<uint16_t>(h->kind));
  store16(p + 20, h->table);
  store16(p + 22, h->table_count);
  store16(p + 24, h->bucket_bits);
  store16(p + 26, h->tag_bits);
  store16(p + 28, h->allowance);
  store16(p + 30, h->rest_bits);
  store64(p + 32, h->count);
  store64(p + 40, h->directory_offset);
  store64(p + 48, h->tags_offset);
  store64(p + 56, h->rest_offset);
  store64(p + 64, h->checksums_offset);
  store64(p + 72, h->file_bytes);
  store64(p + 80, h->set_digest);
  memcpy(p + kPermutationAt, h->permutation, h->width);
  h->checksum = xxh64(p, kChecksumAt, 0);
  store64(p + kChecksumAt, h->checksum);
  return Status::ok;
}

}  // namespace fpstore
