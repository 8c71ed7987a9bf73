// Lines of files, and the fields of JSON lines.
#include "lines/json_lines.hpp"
#include "lines/lines.hpp"
#include "python/module.hpp"

namespace fpstore {

namespace {

Span<const uint8_t> lines_of(const nb::bytes& lines) { return {data_of(lines), lines.size()}; }

// The buffers of a field that is read, which become (kind of each value, values, ends).
struct FieldBuffers {
  nb::bytes name;
  BytesBuffer data;
  Buffer<uint64_t> ends;
  Buffer<uint8_t> kinds;

  FieldBuffers(nb::handle field_name, size_t bytes, size_t rows)
      : name(nb::cast<nb::bytes>(field_name)), data(bytes + kJsonSlack), ends(rows), kinds(rows) {}
  JsonField field() {
    return {{name.c_str(), name.size()},
            data.get(),
            ends.get(),
            reinterpret_cast<JsonKind*>(kinds.get())};
  }
  nb::tuple columns(size_t rows, size_t size) {
    return nb::make_tuple(kinds.array(rows), data.bytes(size), ends.array(rows));
  }
};

// (kinds, data, ends) of each field; None if a line is not regular.
nb::object read_json(nb::bytes block, nb::list names) {
  const Span<const uint8_t> lines = lines_of(block);
  const size_t rows = call([&] { return count_lines(lines); });
  std::vector<FieldBuffers> buffers;
  std::vector<JsonField> fields;
  for (nb::handle name : names)
    fields.push_back(buffers.emplace_back(name, lines.size, rows).field());
  if (!call([&] { return read_json_lines(lines, {fields.data(), fields.size()}); }))
    return nb::none();
  nb::list out;
  for (size_t i = 0; i < fields.size(); ++i) out.append(buffers[i].columns(rows, fields[i].size));
  return out;
}

size_t count(nb::bytes block) {
  return call([lines = lines_of(block)] { return count_lines(lines); });
}

// (starts, ends) of the lines that are not blank.
nb::tuple filled_lines(nb::bytes block) {
  const Span<const uint8_t> lines = lines_of(block);
  const size_t most = call([&] { return count_lines(lines); }) + 1;
  Buffer<uint64_t> starts(most), ends(most);
  const size_t rows = call([&] { return find_filled_lines(lines, starts.get(), ends.get()); });
  return nb::make_tuple(starts.array(rows), ends.array(rows));
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.attr("JSON_MISSING") = static_cast<unsigned>(JsonKind::missing);
  m.attr("JSON_STRING") = static_cast<unsigned>(JsonKind::string);
  m.attr("JSON_OTHER") = static_cast<unsigned>(JsonKind::other);
  m.def("read_json_lines", &read_json, "lines"_a, "names"_a);
  m.def("count_lines", &count, "lines"_a);
  m.def("filled_lines", &filled_lines, "lines"_a);
}

}  // namespace fpstore
