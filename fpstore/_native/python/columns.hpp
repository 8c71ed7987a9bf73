// What the binding of column tables shares: fingerprints of any width, and faults that become exceptions.
#pragma once
#include "columns/request.hpp"
#include "python/module.hpp"

namespace fpstore {

using AnyWords = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;

inline const char* describe_column(Status status) {
  switch (status) {
    case Status::bad_magic: return "not a column table (magic bytes differ)";
    case Status::bad_permutation: return "header permutation is not a permutation of its bits";
    case Status::bad_block_checksum: return "page checksum differs";
    case Status::bad_block_order: return "entries out of order";
    case Status::bad_key: return "a reference leads to a row of another bucket or tag";
    case Status::bad_directory: return "directory does not match the entries";
    case Status::bad_place: return "a reference leads to no row";
    default: return describe(status);
  }
}

// What is wrong with a page or an entry, by its number.
[[noreturn]] inline void raise_column(const Fault& fault, const std::string& path) {
  const bool newer = fault.status == Status::unknown_version || fault.status == Status::unknown_flags ||
                     fault.status == Status::unknown_width;
  if (newer || fault.status == Status::interrupted || fault.status == Status::out_of_memory) raise_fault(fault, path);
  nb::dict facts;
  facts["path"] = path;
  facts["expected"] = fault.expected;
  facts["got"] = fault.got;
  std::string where = path;
  if (fault.block != UINT64_MAX) {
    facts["block"] = fault.block;
    where += (fault.status == Status::bad_block_checksum ? ", page " : ", entry ") + std::to_string(fault.block);
  }
  raise("CorruptStoreError",
        where + ": " + describe_column(fault.status) + " (expected " + std::to_string(fault.expected) + ", got " +
            std::to_string(fault.got) + ")",
        facts);
}

inline void check_column(Status status, const Fault& fault, const std::string& path) {
  if (status != Status::ok) raise_column(fault, path);
}

inline nb::object row_array(Buffer<uint64_t>* words, size_t n, unsigned each) {
  nb::object flat = words->array(n * each);
  return each == 1 ? flat : nb::object(flat.attr("reshape")(n, each));
}

// Fingerprints of the width of a header: (n,), or (n, words).
inline ColumnQueries fingerprints_of(const AnyWords& array, const ColumnHeader& h) {
  const unsigned words = words_of(h.width);
  if (words == 1 ? array.ndim() != 1 : array.ndim() != 2 || array.shape(1) != words)
    throw nb::value_error("fingerprints are an array of shape (n,), or (n, words) where they are wider than 64 bits");
  if (array.shape(0) > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 fingerprints a call");
  if (h.width < 64)
    for (size_t i = 0; i < array.shape(0); ++i)
      if (array.data()[i] & ~top_mask(h.width)) throw nb::value_error("a fingerprint has bits below its width");
  return {array.data(), array.shape(0)};
}

// Blocks of entries whose ids are stored together.
inline uint64_t id_blocks(const ColumnHeader& h) { return (h.count + kRowsInBlock - 1) / kRowsInBlock; }

// What the header of an opened file says.
template <class Table>
void bind_column_header(nb::class_<Table>& table) {
  table.def_ro("path", &Table::path)
      .def_prop_ro("version", [](const Table& t) { return t.header.version; })
      .def_prop_ro("width", [](const Table& t) { return t.header.width; })
      .def_prop_ro("kind", [](const Table& t) { return static_cast<unsigned>(t.header.kind); })
      .def_prop_ro("table", [](const Table& t) { return t.header.table; })
      .def_prop_ro("table_count", [](const Table& t) { return t.header.table_count; })
      .def_prop_ro("bucket_bits", [](const Table& t) { return t.header.bucket_bits; })
      .def_prop_ro("tag_bits", [](const Table& t) { return t.header.tag_bits; })
      .def_prop_ro("threshold", [](const Table& t) { return t.header.allowance - 1; })
      .def_prop_ro("rest_bits", [](const Table& t) { return t.header.rest_bits; })
      .def_prop_ro("count", [](const Table& t) { return t.header.count; })
      .def_prop_ro("fingerprint_count", [](const Table& t) { return t.header.count; })
      .def_prop_ro("block_count", [](const Table& t) { return id_blocks(t.header); })
      .def_prop_ro("directory_offset", [](const Table& t) { return t.header.directory_offset; })
      .def_prop_ro("tags_offset", [](const Table& t) { return t.header.tags_offset; })
      .def_prop_ro("rest_offset", [](const Table& t) { return t.header.rest_offset; })
      .def_prop_ro("checksums_offset", [](const Table& t) { return t.header.checksums_offset; })
      .def_prop_ro("file_bytes", [](const Table& t) { return t.header.file_bytes; })
      .def_prop_ro("set_digest", [](const Table& t) { return t.header.set_digest; })
      .def_prop_ro("seed", [](const Table& t) { return t.header.checksum; })
      .def_prop_ro("permutation",
                   [](const Table& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.permutation), t.header.width); });
}

// Adds the class ColumnParts (module_column_parts.cpp).
void bind_parts(nb::module_& m);
// Adds the class ColumnCutter and the functions of a writer (module_cutter.cpp).
void bind_cutter(nb::module_& m);

}  // namespace fpstore
