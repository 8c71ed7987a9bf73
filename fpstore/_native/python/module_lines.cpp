// Lines of files, the fields of JSON lines, and the digits of numbers.
#include "lines/digits.hpp"
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
nb::tuple nonblank_lines(nb::bytes block) {
  const Span<const uint8_t> lines = lines_of(block);
  const size_t most = call([&] { return count_lines(lines); }) + 1;
  Buffer<uint64_t> starts(most), ends(most);
  const size_t rows = call([&] { return find_nonblank_lines(lines, starts.get(), ends.get()); });
  return nb::make_tuple(starts.array(rows), ends.array(rows));
}

TextPlaces places_of(Span<const uint8_t> text, const Words& starts, const Words& ends) {
  const TextPlaces places{text.data, span_of(starts), span_of(ends)};
  need(starts.size() == ends.size(), kUnequal);
  bool inside = true;
  for (size_t i = 0, n = ends.size(), size = text.size; i < n; ++i)
    inside &= places.starts[i] <= places.ends[i] && places.ends[i] <= size;
  need(inside, "ends run past the data");
  return places;
}

// (data, ends) of parts of a buffer.
nb::tuple copy_spans(nb::object data, Words starts, Words ends) {
  const View source(std::move(data));
  const TextPlaces places = places_of({source.data(), source.size()}, starts, ends);
  const size_t n = starts.size();
  uint64_t size = 0;
  for (size_t i = 0; i < n; ++i) size += places.ends[i] - places.starts[i];
  BytesBuffer out(size);
  uint8_t* const to = out.get();
  Buffer<uint64_t> out_ends(n);
  call([&] {
    uint64_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t length = places.ends[i] - places.starts[i];
      memcpy(to + at, places.text + places.starts[i], length);
      out_ends.get()[i] = at += length;
    }
  });
  return nb::make_tuple(out.bytes(size), out_ends.array(n));
}

// Bytes of a buffer, which other threads do not wait for.
nb::object copy_bytes(nb::object buffer, uint64_t start, uint64_t end) {
  const View source(std::move(buffer));
  need(start <= end && end <= source.size(), "bytes run past the buffer");
  BytesBuffer out(end - start);
  uint8_t* const to = out.get();
  call([&] { memcpy(to, source.data() + start, end - start); });
  return out.bytes(end - start);
}

// The number of characters of each text: text i is at [offsets[i], offsets[i + 1]).
nb::object characters_of(nb::bytes data, Words offsets) {
  const size_t n = count_of_spans(data.size(), offsets);
  Buffer<uint32_t> out(n);
  call([&] {
    for (size_t i = 0; i < n; ++i) {
      const uint64_t start = offsets.data()[i], end = offsets.data()[i + 1];
      out.get()[i] = static_cast<uint32_t>(count_characters({data_of(data) + start, end - start}));
    }
  });
  return out.array(n);
}

// (starts, separators, ends) of the lines of a text; None if they are not alike.
nb::object cut_text_lines(nb::bytes text, nb::bytes separators) {
  CutLines lines;
  const std::string marks(separators.c_str(), separators.size());
  if (!call([&] { return cut_lines({data_of(text), text.size()}, marks, &lines); }))
    return nb::none();
  return nb::make_tuple(array_of(std::move(lines.starts)), array_of(std::move(lines.separators)),
                        array_of(std::move(lines.ends)));
}

// Rows of fingerprints in hexadecimal digits at places of a text; None if one is something else.
nb::object read_hexadecimal_rows(nb::bytes text, Words starts, Words ends, unsigned digits) {
  need(digits == 8 || digits == 16 || digits == 32 || digits == 64, "no digits of a width");
  const TextPlaces places = places_of(lines_of(text), starts, ends);
  const unsigned words = words_of(4 * digits);
  Buffer<uint64_t> rows(words * starts.size());
  if (!call([&] { return read_hexadecimal(places, digits, rows.get()); })) return nb::none();
  return rows.array(starts.size(), words);
}

// Decimal numbers below 2^bits at places of a text; None if one is something else.
nb::object read_decimal_numbers(nb::bytes text, Words starts, Words ends, unsigned bits,
                                bool plain) {
  need(bits && bits <= 64, "numbers have 1 to 64 bits");
  const TextPlaces places = places_of(lines_of(text), starts, ends);
  Buffer<uint64_t> numbers(starts.size());
  if (!call([&] { return read_decimal(places, bits, plain, numbers.get()); })) return nb::none();
  return numbers.array(starts.size());
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.attr("JSON_MISSING") = static_cast<unsigned>(JsonKind::missing);
  m.attr("JSON_STRING") = static_cast<unsigned>(JsonKind::string);
  m.attr("JSON_OTHER") = static_cast<unsigned>(JsonKind::other);
  m.def("read_json_lines", &read_json, "lines"_a, "names"_a);
  m.def("count_lines", &count, "lines"_a);
  m.def("nonblank_lines", &nonblank_lines, "lines"_a);
  m.def("copy_bytes", &copy_bytes, "buffer"_a, "start"_a, "end"_a);
  m.def("count_characters", &characters_of, "data"_a, "offsets"_array);
  m.def("cut_lines", &cut_text_lines, "text"_a, "separators"_a);
  m.def("read_hexadecimal", &read_hexadecimal_rows, "text"_a, "starts"_array, "ends"_array,
        "digits"_a);
  m.def("read_decimal", &read_decimal_numbers, "text"_a, "starts"_array, "ends"_array, "bits"_a,
        "plain"_a);
  m.def("copy_spans", &copy_spans, "data"_a, "starts"_array, "ends"_array);
}

}  // namespace fpstore
