// A column table or row file of which parts are read into memory: its header, and the keys of some entries.
#include "columns/view.hpp"
#include "python/columns.hpp"

namespace fpstore {
namespace {

struct ColumnParts {
  std::string path;
  ColumnHeader header;
  ColumnView view;

  ColumnParts(Bytes start, uint64_t file_bytes, std::string name) : path(std::move(name)) {
    Fault fault;
    const uint64_t known = start.size() < kHeaderBytes ? start.size() : file_bytes;
    check_column(parse_column_header(start.data(), known, &header, &fault), fault, path);
    make_view(header, start.data(), nullptr, &view);
  }

  // The keys of the entries from number first on, from their tags and rests. The directory is that of the buckets from number
  // bucket on, and has a number more than buckets. Nothing is compared with checksums here.
  nb::object decode(uint64_t first, Bytes tags, Bytes rests, uint64_t bucket, Counts directory) const {
    if (view.rows) throw nb::type_error("a row file holds rows");
    const uint64_t n = tags.size() / 2, buckets = directory.size() ? directory.size() - 1 : 0;
    if (first > header.count || n > header.count - first || rests.size() != n * view.rest_bytes ||
        bucket > bucket_count(view) || buckets > bucket_count(view) - bucket)
      throw nb::index_error("entries or buckets outside the table");
    Buffer<uint64_t> out(n);
    uint64_t i = 0;
    {
      ReleasedGil released;
      for (uint64_t b = 0; b < buckets && directory.data()[b] <= first + i; ++b)
        for (const uint64_t end = directory.data()[b + 1]; i < n && first + i < end; ++i) out.get()[i] = key(bucket + b, tags.data(), rests.data(), i);
    }
    if (i < n) raise_column(Fault{Status::bad_directory, UINT64_MAX, header.count, first + i}, path);
    return out.array(n);
  }

  uint64_t key(uint64_t bucket, const uint8_t* tags, const uint8_t* rests, uint64_t i) const {
    uint64_t rest = 0;
    for (unsigned b = 0; b < view.rest_bytes; ++b) rest |= uint64_t{rests[view.rest_bytes * i + b]} << 8 * b;
    return head_of(view, bucket, load16(tags + 2 * i)) | (rest & view.rest_mask) << view.rest_shift;
  }
};

}  // namespace

void bind_parts(nb::module_& m) {
  nb::class_<ColumnParts> parts(m, "ColumnParts");
  parts.def(nb::init<Bytes, uint64_t, std::string>(), "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &ColumnParts::decode, "first"_a, "tags"_a, "rests"_a, "bucket"_a, "directory"_a);
  bind_column_header(parts);
}

}  // namespace fpstore
