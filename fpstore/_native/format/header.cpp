#include "format/header.hpp"

#include "format/header_fields.hpp"
#include "format/huffman.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr uint8_t kMagic[8] = {'F', 'P', 'S', 'T', 'A', 'B', 'L', 'E'};
constexpr unsigned kCodeAt = kPermutationAt + kMaxWidth;
static_assert(kFieldBytes<TableHeader> == 80);

void layout(TableHeader* h) {
  h->blocks_offset = kHeaderBytes;
  h->keys_offset = h->blocks_offset + h->block_count * h->block_bytes;
  h->directory_offset = h->keys_offset + h->block_count * 8 * words_of(h->width);
  h->file_bytes = h->directory_offset + ((uint64_t{1} << h->directory_bits) + 1) * 8;
}

// Whether the code has no symbol that entries of this width cannot have.
bool fits_width(const uint8_t code_bits[kSymbols], unsigned bits) {
  for (unsigned s = symbols_of(bits); s < kSymbols; ++s)
    if (code_bits[s]) return false;
  return true;
}

// A complete code that fits the width, or none where the codec needs none.
bool has_right_code(const TableHeader& h) {
  if (codec_of(h) == Codec::elias_fano) return !has_code(h.code_bits);
  EncodeTable table;  // checked alike, and a tenth of the size of what decodes
  return fits_width(h.code_bits, h.width) && make_encode_table(h.code_bits, &table) == Status::ok;
}

}  // namespace

bool has_code(const uint8_t code_bits[kSymbols]) {
  bool any = false;
  for (unsigned s = 0; s < kSymbols; ++s) any |= code_bits[s] != 0;
  return any;
}

const char* describe(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::bad_magic:
      return "another kind of file (magic bytes differ)";
    case Status::bad_header_checksum:
      return "header checksum differs";
    case Status::unknown_version:
      return "unknown format version";
    case Status::unknown_flags:
      return "unknown flags";
    case Status::unknown_width:
      return "unknown fingerprint width";
    case Status::bad_header_field:
      return "header field out of range";
    case Status::bad_permutation:
      return "header permutation is not a permutation of the bits";
    case Status::bad_code:
      return "Huffman code lengths are not a complete code";
    case Status::bad_file_size:
      return "file size differs from the header";
    case Status::bad_block_checksum:
      return "block checksum differs";
    case Status::bad_block_count:
      return "block entry count out of range";
    case Status::bad_block_bits:
      return "block bit streams do not fit the block";
    case Status::bad_block_order:
      return "block entries out of order";
    case Status::bad_key:
      return "key index does not match the block";
    case Status::bad_directory:
      return "key directory does not match the keys";
    case Status::bad_digest:
      return "the table holds another set of fingerprints than its header says";
    case Status::bad_padding:
      return "padding is not zero";
    case Status::bad_record:
      return "id record is damaged";
    case Status::bad_place:
      return "a place that the table does not have";
    case Status::out_of_memory:
      return "out of memory";
    case Status::interrupted:
      return "interrupted";
  }
  return "unknown fault";
}

uint64_t block_seed(const TableHeader& h) {
  uint8_t bytes[kMaxWidth + kSymbols];
  memcpy(bytes, h.permutation, kMaxWidth);
  memcpy(bytes + kMaxWidth, h.code_bits, kSymbols);
  return xxh64(bytes, sizeof bytes, h.set_digest);
}

unsigned directory_bits_for(uint64_t block_count) {
  unsigned bits = 0;
  while (bits < kMaxDirectoryBits && (block_count >> (bits + 4)) > 0) ++bits;
  return bits;
}

// Whether the fields agree with the limits of the format, with each other and with the size of the
// file.
static Status check_fields(const TableHeader& h, uint64_t file_bytes, Fault* fault) {
  if (h.flags & ~kEliasFanoFlag) return fail(fault, Status::unknown_flags, kEliasFanoFlag, h.flags);
  if (!is_width(h.width)) return fail(fault, Status::unknown_width, kMaxWidth, h.width);
  if (h.table >= h.table_count)
    return fail(fault, Status::bad_header_field, h.table_count, h.table);
  const unsigned most_bits = h.width < 64 ? h.width : 64;
  if (h.prefix_bits > most_bits)
    return fail(fault, Status::bad_header_field, most_bits, h.prefix_bits);
  if (h.flips > h.prefix_bits) return fail(fault, Status::bad_header_field, h.prefix_bits, h.flips);
  if (h.block_bytes < kMinBlockBytes || h.block_bytes > kMaxBlockBytes ||
      (h.block_bytes & (h.block_bytes - 1)))
    return fail(fault, Status::bad_header_field, kMaxBlockBytes, h.block_bytes);
  if (h.directory_bits > kMaxDirectoryBits)
    return fail(fault, Status::bad_header_field, kMaxDirectoryBits, h.directory_bits);
  // No sum of the layout overflows: a file has fewer than 2^63 bytes, and the blocks are a part of
  // it.
  if (file_bytes >> 63) return fail(fault, Status::bad_file_size, h.file_bytes, file_bytes);
  if (h.block_count > file_bytes / h.block_bytes)
    return fail(fault, Status::bad_header_field, file_bytes / h.block_bytes, h.block_count);
  if (h.fingerprint_count < h.block_count || h.fingerprint_count / kMaxEntries > h.block_count ||
      (h.block_count == 0 && h.fingerprint_count != 0))
    return fail(fault, Status::bad_header_field, h.block_count, h.fingerprint_count);
  if (!is_padded_permutation(h.permutation, h.width))
    return fail(fault, Status::bad_permutation, 0, 0);
  if (!has_right_code(h)) return fail(fault, Status::bad_code, 0, 0);
  TableHeader expected = h;
  layout(&expected);
  return check_layout(h, expected, file_bytes, fault);
}

bool is_padded_permutation(const uint8_t permutation[kMaxWidth], unsigned bits) {
  for (unsigned i = bits; i < kMaxWidth; ++i)
    if (permutation[i]) return false;
  return is_permutation(permutation, bits);
}

Status copy_header(const uint8_t* data, uint64_t file_bytes, const uint8_t magic[8], uint8_t* p,
                   Fault* fault) {
  *fault = Fault{};
  if (file_bytes < kHeaderBytes)
    return fail(fault, Status::bad_file_size, kHeaderBytes, file_bytes);
  memcpy(p, data, kHeaderBytes);
  if (memcmp(p, magic, 8) != 0) return fail(fault, Status::bad_magic, 0, 0);
  // The version is looked at before the checksum: a newer format may keep its checksum elsewhere.
  const uint32_t version = load32(p + 8);
  if (version == 0 || version > kFormatVersion)
    return fail(fault, Status::unknown_version, kFormatVersion, version);
  const uint64_t checksum = xxh64(p, kChecksumAt, 0), stored = load64(p + kChecksumAt);
  return checksum == stored ? Status::ok
                            : fail(fault, Status::bad_header_checksum, stored, checksum);
}

Status check_padding(const uint8_t* p, unsigned fields_end, unsigned more, Fault* fault) {
  for (unsigned i = fields_end; i < kChecksumAt; ++i)
    if ((i < kPermutationAt || i >= kPermutationAt + kMaxWidth + more) && p[i])
      return fail(fault, Status::bad_padding, 0, i);
  return Status::ok;
}

uint64_t seal_header(uint8_t* p) {
  const uint64_t checksum = xxh64(p, kChecksumAt, 0);
  store64(p + kChecksumAt, checksum);
  return checksum;
}

Status parse_header(const uint8_t* data, uint64_t file_bytes, TableHeader* h, Fault* fault) {
  uint8_t p[kHeaderBytes];
  FPSTORE_TRY(copy_header(data, file_bytes, kMagic, p, fault));
  read_fields(p, h);
  memcpy(h->code_bits, p + kCodeAt, kSymbols);
  FPSTORE_TRY(check_fields(*h, file_bytes, fault));
  return check_padding(p, kFieldsAt + kFieldBytes<TableHeader>, kSymbols, fault);
}

void write_header(TableHeader* h, uint8_t* p) {
  h->directory_bits = static_cast<uint16_t>(directory_bits_for(h->block_count));
  h->flags = has_code(h->code_bits) ? 0 : kEliasFanoFlag;
  layout(h);
  write_fields(*h, kMagic, p);
  memcpy(p + kCodeAt, h->code_bits, kSymbols);
  seal_header(p);
}

}  // namespace fpstore
