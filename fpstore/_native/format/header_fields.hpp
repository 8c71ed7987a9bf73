// What the headers of tables, of column tables and of filters have in common. Up to the
// permutation, their fields have the same order and size in memory as in the file, where they begin
// behind the magic bytes.
#pragma once
#include "format/permutation.hpp"

namespace fpstore {

constexpr unsigned kFieldsAt = 8;
constexpr unsigned kPermutationAt =
    128;  // kMaxWidth bytes, of which those behind the width are zero
constexpr unsigned kChecksumAt = kHeaderBytes - 8;

inline Status fail(Fault* fault, Status status, uint64_t expected, uint64_t got) {
  *fault = Fault{status, UINT64_MAX, expected, got};
  return status;
}

// Whether the first bits entries are a permutation, and those behind them zero.
bool is_padded_permutation(const uint8_t permutation[kMaxWidth], unsigned bits);

// Copies the header of a mapped file, which may change at any time, to p, which is checked and
// taken apart. Compares the magic bytes, the version and the checksum.
Status copy_header(const uint8_t* data, uint64_t file_bytes, const uint8_t magic[8], uint8_t* p,
                   Fault* fault);
// Whether the bytes that no field has are zero: those behind the fields that end here, and behind
// the permutation and more bytes.
Status check_padding(const uint8_t* p, unsigned fields_end, unsigned more, Fault* fault);
// Writes the checksum, which is returned.
uint64_t seal_header(uint8_t* p);

template <class Header>
constexpr unsigned kFieldBytes = offsetof(Header, permutation);

template <class Header>
void read_fields(const uint8_t* p, Header* h) {
  memcpy(static_cast<void*>(h), p + kFieldsAt, kFieldBytes<Header>);
  memcpy(h->permutation, p + kPermutationAt, kMaxWidth);
}

// Whether a header has the fields that follow from the others, and the file the size that it says.
template <class Header>
Status check_layout(const Header& h, const Header& expected, uint64_t file_bytes, Fault* fault) {
  if (memcmp(&h, &expected, kFieldBytes<Header>))
    return fail(fault, Status::bad_header_field, expected.file_bytes, h.file_bytes);
  return h.file_bytes == file_bytes ? Status::ok
                                    : fail(fault, Status::bad_file_size, h.file_bytes, file_bytes);
}

template <class Header>
void write_fields(const Header& h, const uint8_t magic[8], uint8_t* p) {
  memset(p, 0, kHeaderBytes);
  memcpy(p, magic, 8);
  memcpy(p + kFieldsAt, &h, kFieldBytes<Header>);
  memcpy(p + kPermutationAt, h.permutation, h.width);
}

}  // namespace fpstore
