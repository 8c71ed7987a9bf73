// What the writer of column tables and row files needs: headers, sections, checksums, the keys of references.
#include "columns/write.hpp"
#include "python/columns.hpp"

namespace fpstore {
namespace {

// Cuts what a writer is given into the sections of a file that a header describes.
struct ColumnCutter {
  ColumnHeader header;
  std::vector<uint8_t> header_bytes = std::vector<uint8_t>(kHeaderBytes);
  ColumnFeed state;
  std::vector<uint32_t> bucket_counts;

  ColumnCutter(unsigned kind, unsigned width, uint64_t count, uint64_t set_digest, Bytes permutation, unsigned bucket_bits,
               unsigned tag_bits, unsigned allowance, unsigned table, unsigned table_count) {
    if (permutation.size() != width || width > kMaxWidth) throw nb::value_error("a permutation has an entry for each bit");
    for (const unsigned field : {kind, bucket_bits, tag_bits, allowance, table, table_count})
      if (field > UINT16_MAX) throw nb::value_error("a field of a header is too large");
    header.width = static_cast<uint16_t>(width);
    header.kind = static_cast<ColumnKind>(kind);
    header.table = static_cast<uint16_t>(table);
    header.table_count = static_cast<uint16_t>(table_count);
    header.bucket_bits = static_cast<uint16_t>(bucket_bits);
    header.tag_bits = static_cast<uint16_t>(tag_bits);
    header.allowance = static_cast<uint16_t>(allowance);
    header.count = count;
    header.set_digest = set_digest;
    memcpy(header.permutation, permutation.data(), width);
    Fault fault;
    if (write_column_header(&header, header_bytes.data(), &fault) != Status::ok)
      throw nb::value_error((std::string("no such column table: ") + describe_column(fault.status)).c_str());
    bucket_counts.resize(uint64_t{1} << bucket_bits);
  }

  [[noreturn]] void raise_order(uint64_t got) const {
    nb::dict facts;
    facts["expected"] = state.any ? state.last[0] : 0;
    facts["got"] = got;
    raise("InputError", "keys out of order: each must be greater than the one before, with no bit below its rest", facts);
  }

  // (tags, rests) of sorted keys.
  nb::tuple cut(Words keys) {
    if (header.kind == ColumnKind::rows) throw nb::type_error("a row file holds rows");
    Buffer<uint8_t> tags(2 * keys.size()), rests(rest_bytes(header) * keys.size() + 1);
    size_t n;
    {
      ReleasedGil released;
      n = cut_keys(header, keys.data(), keys.size(), &state, bucket_counts.data(), tags.get(), rests.get());
    }
    if (n < keys.size()) raise_order(keys.data()[n]);
    return nb::make_tuple(tags.array(2 * n), rests.array(rest_bytes(header) * n));
  }

  void count(AnyWords rows) {
    if (header.kind != ColumnKind::rows) throw nb::type_error("only a row file holds rows");
    const ColumnQueries given = fingerprints_of(rows, header);
    size_t n;
    {
      ReleasedGil released;
      n = count_rows(header, given.words, given.count, &state, bucket_counts.data());
    }
    if (n < given.count) raise_order(given.words[words_of(header.width) * n]);
  }

  nb::object directory() const {
    Buffer<uint32_t> out(bucket_counts.size() + 1);
    uint32_t sum = 0;
    for (size_t i = 0; i < bucket_counts.size(); ++i) {
      out.get()[i] = sum;
      sum += bucket_counts[i];
    }
    out.get()[bucket_counts.size()] = sum;
    return out.array(bucket_counts.size() + 1);
  }
};

nb::object checksums_of(Bytes data, uint64_t seed, uint64_t first) {
  const size_t n = (data.size() + kPageBytes - 1) / kPageBytes;
  Buffer<uint64_t> out(n);
  {
    ReleasedGil released;
    page_checksums(data.data(), data.size(), seed, first, out.get());
  }
  return out.array(n);
}

uint64_t digest_of(AnyWords words) {
  const size_t each = words.ndim() == 1 ? 1 : words.ndim() == 2 ? words.shape(1) : 0;
  if (each != 1 && each != 2 && each != 4) throw nb::value_error("fingerprints are an array of shape (n,), (n, 2) or (n, 4)");
  ReleasedGil released;
  return words_digest(words.data(), words.shape(0), static_cast<unsigned>(each));
}

// The keys of references to rows from number first on of a file of count rows; not sorted.
nb::object reference_keys(AnyWords rows, uint64_t first, uint64_t count, Bytes permutation, unsigned bucket_bits) {
  const size_t n = rows.ndim() == 2 ? rows.shape(0) : 0, each = rows.ndim() == 2 ? rows.shape(1) : 0;
  ColumnHeader h;
  h.kind = ColumnKind::references;
  h.count = count;
  const unsigned head = bucket_bits + kTagBits, rest = rest_bits_for(h);
  if ((each != 2 && each != 4) || permutation.size() != 64 * each) throw nb::value_error("rows are an array of shape (n, 2) or (n, 4)");
  if (bucket_bits > kMaxBucketBits || head + rest > 64 || first > count || n > count - first)
    throw nb::value_error("bucket, tag and row number do not fit a key");
  for (size_t i = 0; i < permutation.size(); ++i)
    if (permutation.data()[i] >= 64 * each) throw nb::value_error("not a permutation");
  Terms terms;
  make_terms(permutation.data(), head, &terms);
  Buffer<uint64_t> out(n);
  {
    ReleasedGil released;
    for (size_t i = 0; i < n; ++i)
      out.get()[i] = gather(terms, rows.data() + each * i) | (rest ? (first + i) << (64 - head - rest) : 0);
  }
  return out.array(n);
}

}  // namespace

void bind_cutter(nb::module_& m) {
  nb::class_<ColumnCutter>(m, "ColumnCutter")
      .def(nb::init<unsigned, unsigned, uint64_t, uint64_t, Bytes, unsigned, unsigned, unsigned, unsigned, unsigned>(), "kind"_a,
           "width"_a, "count"_a, "set_digest"_a, "permutation"_a, "bucket_bits"_a, "tag_bits"_a, "allowance"_a, "table"_a,
           "table_count"_a)
      .def_prop_ro("header", [](const ColumnCutter& c) { return nb::bytes(reinterpret_cast<const char*>(c.header_bytes.data()), kHeaderBytes); })
      .def_prop_ro("tags_offset", [](const ColumnCutter& c) { return c.header.tags_offset; })
      .def_prop_ro("rest_offset", [](const ColumnCutter& c) { return c.header.rest_offset; })
      .def_prop_ro("checksums_offset", [](const ColumnCutter& c) { return c.header.checksums_offset; })
      .def_prop_ro("file_bytes", [](const ColumnCutter& c) { return c.header.file_bytes; })
      .def_prop_ro("seed", [](const ColumnCutter& c) { return c.header.checksum; })
      .def("cut", &ColumnCutter::cut, nb::arg("keys").noconvert())
      .def("count", &ColumnCutter::count, nb::arg("rows").noconvert())
      .def("directory", &ColumnCutter::directory);
  m.attr("ROWS_IN_BLOCK") = kRowsInBlock;
  m.attr("PAGE_BYTES") = kPageBytes;
  m.attr("TAG_BITS") = kTagBits;
  m.attr("LEAST_BUCKET_BITS") = kMinBucketBits;
  m.attr("MOST_BUCKET_BITS") = kMaxBucketBits;
  m.attr("LOOKUP_ENTRIES") = kLookupEntries;
  m.attr("ORDERED_QUERIES") = kOrderedFrom;
  m.attr("SPARE_THRESHOLDS") = kSpare;
  m.attr("MOST_RING") = kMostRing;
  m.def("page_checksums", &checksums_of, "data"_a, "seed"_a, "first"_a);
  m.def("words_digest", &digest_of, nb::arg("words").noconvert());
  m.def("reference_keys", &reference_keys, nb::arg("rows").noconvert(), "first"_a, "count"_a, "permutation"_a, "bucket_bits"_a);
}

}  // namespace fpstore
