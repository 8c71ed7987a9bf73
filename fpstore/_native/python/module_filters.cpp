// Filters of tables: mapped for probes, and written beside their table.
#include "build/filter_encode.hpp"
#include "python/filter.hpp"

namespace fpstore {

Filter::Filter(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
  Fault fault;
  check(parse_filter_header(data.data(), data.size(), &header, &fault), fault, path);
  seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
  make_view(header, data.data(), seen.get(), &view);
}

void Filter::tell() {
  told = true;
  nb::module_::import_("fpstore.base.diagnostics").attr("tell_left_out")(path);
}

namespace {

// The bytes of a filter file behind its header, in order: feed() the keys of the table, then finish(); then there is the header.
struct FilterCutter {
  FilterHeader header;
  std::optional<FilterEncoder> state;
  std::vector<uint8_t> rest;   // behind the last whole page
  std::vector<uint64_t> sums;  // of the pages before it

  FilterCutter(Bytes permutation, uint64_t fingerprint_count, uint64_t set_digest, std::tuple<unsigned, unsigned> place,
          std::tuple<unsigned, unsigned, unsigned> shape) {
    const auto [table, table_count] = place;
    const auto [prefix_bits, bucket_bits, bits_per_prefix] = shape;
    if (permutation.size() > kMaxWidth) throw nb::value_error("a permutation has an entry for each bit");
    for (const unsigned field : {table, table_count, prefix_bits, bucket_bits, bits_per_prefix})
      if (field > UINT16_MAX) throw nb::value_error("a field of a header is too large");
    header.width = static_cast<uint16_t>(permutation.size());
    header.table = static_cast<uint16_t>(table);
    header.table_count = static_cast<uint16_t>(table_count);
    header.prefix_bits = static_cast<uint16_t>(prefix_bits);
    header.bucket_bits = static_cast<uint16_t>(bucket_bits);
    header.bits_per_prefix = static_cast<uint16_t>(bits_per_prefix);
    header.fingerprint_count = fingerprint_count;
    header.set_digest = set_digest;
    std::copy_n(permutation.data(), permutation.size(), header.permutation);
    (void)header_bytes();  // refuses a shape that the format does not allow
    state.emplace(header);
  }

  // The pages that the next keys complete.
  nb::object feed(Rows keys) {
    const unsigned words = words_of(header.width);
    need_words(keys, words);
    size_t whole;
    {
      ReleasedGil released;
      const size_t before = rest.size();
      state->feed(keys.data(), count_of(keys), words, &rest);
      header.word_count += (rest.size() - before) / 8;
      whole = rest.size() / kPageBytes * kPageBytes;
      sum(whole);
    }
    return taken(whole);
  }

  // The last words, the first word of each bucket and the end of the last, padded to eight bytes, and the checksums.
  nb::object finish() {
    {
      ReleasedGil released;
      size_t at = rest.size();
      state->finish(&rest);
      header.word_count += (rest.size() - at) / 8;
      const auto& starts = state->starts();
      at = rest.size();
      rest.resize(at + (4 * starts.size() + 7) / 8 * 8);
      for (size_t i = 0; i < starts.size(); ++i) store32(rest.data() + at + 4 * i, starts[i]);
      sum(rest.size());
      at = rest.size();
      rest.resize(at + 8 * sums.size());
      for (size_t i = 0; i < sums.size(); ++i) store64(rest.data() + at + 8 * i, sums[i]);
    }
    return taken(rest.size());
  }

  void sum(size_t size) {
    const size_t before = sums.size();
    sums.resize(before + (size + kPageBytes - 1) / kPageBytes);
    page_checksums(rest.data(), size, filter_seed(header), before, sums.data() + before);
  }

  nb::object taken(size_t size) {
    Buffer<uint8_t> out(size);
    std::copy_n(rest.data(), size, out.get());
    rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
    return out.array(size);
  }

  nb::bytes header_bytes() {
    uint8_t bytes[kHeaderBytes];
    Fault fault;
    if (write_filter_header(&header, bytes, &fault) != Status::ok)
      throw nb::value_error((std::string("no such filter: ") + describe(fault.status)).c_str());
    return nb::bytes(reinterpret_cast<const char*>(bytes), kHeaderBytes);
  }
};

}  // namespace

void bind_filters(nb::module_& m) {
  nb::class_<Filter>(m, "Filter")
      .def(nb::init<Bytes, std::string>(), nb::arg("data").noconvert(), "path"_a)
      .def_ro("path", &Filter::path)
      .def_prop_ro("width", [](const Filter& f) { return f.header.width; })
      .def_prop_ro("table", [](const Filter& f) { return f.header.table; })
      .def_prop_ro("table_count", [](const Filter& f) { return f.header.table_count; })
      .def_prop_ro("shape",
                   [](const Filter& f) {
                     return nb::make_tuple(f.header.prefix_bits, f.header.bucket_bits, f.header.bits_per_prefix);
                   })
      .def_prop_ro("fingerprint_count", [](const Filter& f) { return f.header.fingerprint_count; })
      .def_prop_ro("word_count", [](const Filter& f) { return f.header.word_count; })
      .def_prop_ro("starts_offset", [](const Filter& f) { return f.header.starts_offset; })
      .def_prop_ro("checksums_offset", [](const Filter& f) { return f.header.checksums_offset; })
      .def_prop_ro("file_bytes", [](const Filter& f) { return f.header.file_bytes; })
      .def_prop_ro("set_digest", [](const Filter& f) { return f.header.set_digest; })
      .def_prop_ro("permutation",
                   [](const Filter& f) { return nb::bytes(reinterpret_cast<const char*>(f.header.permutation), f.header.width); })
      .def_prop_ro("passing", [](const Filter& f) { return f.view.passing; })
      .def_prop_ro("damaged", [](const Filter& f) { return is_damaged(f.view); });
  nb::class_<FilterCutter>(m, "FilterCutter")
      .def(nb::init<Bytes, uint64_t, uint64_t, std::tuple<unsigned, unsigned>, std::tuple<unsigned, unsigned, unsigned>>(),
           "permutation"_a, "fingerprint_count"_a, "set_digest"_a, "place"_a, "shape"_a)
      .def_prop_ro("header", &FilterCutter::header_bytes)
      .def("feed", &FilterCutter::feed, nb::arg("keys").noconvert())
      .def("finish", &FilterCutter::finish);
}

}  // namespace fpstore
