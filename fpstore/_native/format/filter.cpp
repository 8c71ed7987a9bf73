#include "format/filter.hpp"

#include <cmath>

#include "format/header_fields.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr uint8_t kMagic[8] = {'F', 'P', 'S', 'F', 'I', 'L', 'T', 'R'};
static_assert(offsetof(FilterHeader, bits_per_prefix) - offsetof(FilterHeader, width) == 10 &&
              kFieldBytes<FilterHeader> == 72);

void layout(FilterHeader* h) {
  h->starts_offset = kHeaderBytes + 8 * h->word_count;
  h->checksums_offset = h->starts_offset + (4 * ((uint64_t{1} << h->bucket_bits) + 1) + 7) / 8 * 8;
  h->file_bytes =
      h->checksums_offset + (h->checksums_offset - kHeaderBytes + kPageBytes - 1) / kPageBytes * 8;
}

// Whether the fields from which all else follows are within the limits of the format.
Status check_fields(const FilterHeader& h, Fault* fault) {
  if (h.flags != 0) return fail(fault, Status::unknown_flags, 0, h.flags);
  if (!is_width(h.width)) return fail(fault, Status::unknown_width, kMaxWidth, h.width);
  const auto field = [fault](uint64_t expected, uint64_t got) {
    return fail(fault, Status::bad_header_field, expected, got);
  };
  if (h.table >= h.table_count) return field(h.table_count, h.table);
  if (h.prefix_bits == 0 || h.prefix_bits > kMaxFilterBits || h.prefix_bits > h.width)
    return field(kMaxFilterBits, h.prefix_bits);
  if (h.bucket_bits > kMaxFilterBucketBits ||
      static_cast<unsigned>(h.prefix_bits - h.bucket_bits) > kMaxFilterRestBits)
    return field(h.prefix_bits, h.bucket_bits);
  if (h.bits_per_prefix == 0 || h.bits_per_prefix > kMaxBitsPerPrefix)
    return field(kMaxBitsPerPrefix, h.bits_per_prefix);
  if (h.word_count >> 32) return field(UINT32_MAX, h.word_count);
  if (!is_padded_permutation(h.permutation, h.width))
    return fail(fault, Status::bad_permutation, 0, 0);
  return Status::ok;
}

}  // namespace

// Of the fields that are known before the first entry: the 12 bytes from the width on, and the
// permutation.
uint64_t filter_seed(const FilterHeader& h) {
  uint8_t bytes[16 + kMaxWidth] = {};
  memcpy(bytes, reinterpret_cast<const uint8_t*>(&h) + offsetof(FilterHeader, width), 12);
  memcpy(bytes + 16, h.permutation, kMaxWidth);
  return xxh64(bytes, sizeof bytes, h.set_digest);
}

Status parse_filter_header(const uint8_t* data, uint64_t file_bytes, FilterHeader* h,
                           Fault* fault) {
  uint8_t p[kHeaderBytes];
  FPSTORE_TRY(copy_header(data, file_bytes, kMagic, p, fault));
  read_fields(p, h);
  FPSTORE_TRY(check_fields(*h, fault));
  FilterHeader expected = *h;
  layout(&expected);
  FPSTORE_TRY(check_layout(*h, expected, file_bytes, fault));
  if (h->reserved) return fail(fault, Status::bad_padding, 0, 28);
  return check_padding(p, kFieldsAt + kFieldBytes<FilterHeader>, 0, fault);
}

Status write_filter_header(FilterHeader* h, uint8_t* p, Fault* fault) {
  *fault = Fault{};
  FPSTORE_TRY(check_fields(*h, fault));
  layout(h);
  write_fields(*h, kMagic, p);
  seal_header(p);
  return Status::ok;
}

double passing_share(const FilterHeader& h) {
  if (h.word_count == 0) return 0;
  const double n = static_cast<double>(h.fingerprint_count);
  const double set = 1 - std::exp(-3 * n / (static_cast<double>(h.word_count) * 64));
  return std::fmin(1, set * set * set + n / std::ldexp(1.0, h.prefix_bits));
}

void make_view(const FilterHeader& h, const uint8_t* data, uint64_t* seen, FilterView* f) {
  f->bits = data + kHeaderBytes;
  f->starts = data + h.starts_offset;
  f->bits_at = kHeaderBytes;
  f->starts_at = h.starts_offset;
  f->word_count = h.word_count;
  f->prefix_bits = h.prefix_bits;
  f->rest_bits = h.prefix_bits - h.bucket_bits;
  f->passing = passing_share(h);
  f->pages = Pages{data,         data + h.checksums_offset, seen,
                   kHeaderBytes, h.checksums_offset,        filter_seed(h)};
  f->damaged = false;
}

bool compare_filter_pages(const FilterView& f, uint64_t at, uint64_t n) {
  Fault fault;
  if (verify(f.pages, at, n, &fault) == Status::ok) return true;
  note_damage(f);
  return false;
}

}  // namespace fpstore
