// The functions for strings: columns of them, and their records before and after they are
// decompressed.
#include "format/string_record.hpp"
#include "format/xxh64.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

nb::object item_of(nb::handle sequence, size_t i) {
  nb::object item = nb::steal(PySequence_GetItem(sequence.ptr(), static_cast<Py_ssize_t>(i)));
  if (!item.is_valid()) throw nb::python_error();
  return item;
}

// The frame of a value; None if it is damaged.
nb::object checked_frame(nb::bytes value, uint64_t seed) {
  uint64_t content_bytes;
  if (!open_string_record(data_of(value), value.size(), seed, &content_bytes)) return nb::none();
  return bytes_of(data_of(value) + kStringChecksumBytes, value.size() - kStringChecksumBytes);
}

// The frames of the first values, one after the other, where each starts and how long it is, and
// how long its content is. As many as have together at most most_bytes of content, and at least
// one; None if one of them is damaged.
nb::object checked_frames(nb::list values, Words seeds, uint64_t most_bytes) {
  const size_t n = seeds.size();
  need(nb::len(values) == n, kUnequal);
  std::string all;
  std::vector<uint64_t> segments, sizes;
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    const nb::handle value = values[i];
    if (!nb::isinstance<nb::bytes>(value)) return nb::none();
    const nb::bytes bytes = nb::borrow<nb::bytes>(value);
    uint64_t content_bytes;
    if (!open_string_record(data_of(bytes), bytes.size(), seeds.data()[i], &content_bytes))
      return nb::none();
    if (i && content_bytes > most_bytes - total) break;
    total += content_bytes;
    if (total > most_bytes) total = most_bytes;
    sizes.push_back(content_bytes);
    segments.push_back(all.size());
    segments.push_back(bytes.size() - kStringChecksumBytes);
    all.append(bytes.c_str() + kStringChecksumBytes, bytes.size() - kStringChecksumBytes);
  }
  return nb::make_tuple(bytes_of(all.data(), all.size()),
                        bytes_of(segments.data(), segments.size() * 8),
                        bytes_of(sizes.data(), sizes.size() * 8));
}

// Not valid, with the error set, where it is no UTF-8. Any other error, as of memory, says nothing
// about the string and is raised.
nb::object text_of(const uint8_t* data, size_t size) {
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(data),
                                                   static_cast<Py_ssize_t>(size), nullptr));
  if (!text.is_valid() && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
    throw nb::python_error();
  return text;
}

bool find_all_ends(const View& content, uint64_t count, std::vector<uint64_t>* ends) {
  if (count > content.size()) return false;
  ends->resize(count);
  return find_string_ends(content.data(), content.size(), count, ends->data());
}

// The string of a rank of a decompressed record; None if the record does not have `count` strings,
// or this one is no UTF-8.
nb::object string_at(nb::bytes content, uint64_t count, uint64_t rank) {
  if (rank >= count) throw nb::index_error("no such rank");
  if (count > content.size()) return nb::none();
  uint64_t few[256];
  std::vector<uint64_t> many(count > 256 ? count : 0);
  uint64_t* const ends = many.empty() ? few : many.data();
  if (!find_string_ends(data_of(content), content.size(), count, ends)) return nb::none();
  const uint64_t start = rank ? ends[rank - 1] + 1 : 0;
  nb::object text = text_of(data_of(content) + start, ends[rank] - start);
  if (text.is_valid()) return text;
  PyErr_Clear();
  return nb::none();
}

// (data, ends) of all strings of decompressed records, of which content i has counts[i]; None if
// one does not.
nb::object join_contents(nb::object contents, Words counts) {
  const size_t n = counts.size();
  need(nb::len(contents) == n, kUnequal);
  std::string data;
  std::vector<uint64_t> all, ends;
  for (size_t i = 0; i < n; ++i) {
    const View content(item_of(contents, i));
    if (!find_all_ends(content, counts.data()[i], &ends)) return nb::none();
    uint64_t start = 0;
    for (uint64_t end : ends) {
      data.append(reinterpret_cast<const char*>(content.data()) + start, end - start);
      all.push_back(data.size());
      start = end + 1;
    }
  }
  return nb::make_tuple(bytes_of(data.data(), data.size()), array_of(all));
}

// Puts wanted strings of decompressed records, as text, at places of a list: content i has
// counts[i] strings, and the wanted string j, at places[j], is that of ranks[j], for lims[i] <= j <
// lims[i + 1]. Equal neighbours are one object. Returns how many bytes all of them have; None if a
// record has another number of strings, or one is empty or no UTF-8.
nb::object place_strings(nb::object contents, Words counts, Words lims, Words ranks, Words places,
                         nb::list out) {
  const size_t n = counts.size(), room = nb::len(out);
  need(lims.size() == n + 1 && nb::len(contents) == n && places.size() == ranks.size(), kUnequal);
  std::vector<uint64_t> ends;
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    const View content(item_of(contents, i));
    const uint64_t count = counts.data()[i], first = lims.data()[i], last = lims.data()[i + 1];
    need(first <= last && last <= ranks.size(), "lims descend, or run past the ranks");
    if (!find_all_ends(content, count, &ends)) return nb::none();
    nb::object text;
    for (uint64_t j = first; j < last; ++j) {
      const uint64_t rank = ranks.data()[j], place = places.data()[j];
      if (rank >= count || place >= room) throw nb::index_error("no such rank or place");
      const uint64_t start = rank ? ends[rank - 1] + 1 : 0, size = ends[rank] - start;
      if (j == first || rank != ranks.data()[j - 1]) text = text_of(content.data() + start, size);
      if (!text.is_valid()) PyErr_Clear();
      if (!text.is_valid() || !size) return nb::none();
      out[place] = text;
      bytes += size;
    }
  }
  return nb::int_(bytes);
}

// Strings one after the other and where each ends; checks that they are.
struct Strings {
  const uint8_t* data;
  const uint64_t* ends;
  size_t n;
  uint64_t start(size_t i) const { return i ? ends[i - 1] : 0; }
  uint64_t size(size_t i) const { return ends[i] - start(i); }
};

Strings column_of(const nb::bytes& data, const Words& ends) {
  const Strings column{data_of(data), ends.data(), ends.size()};
  for (size_t i = 0; i < column.n; ++i) need(column.ends[i] >= column.start(i), "ends descend");
  need(!column.n || column.ends[column.n - 1] <= data.size(), "ends run past the data");
  return column;
}

// The XXH64 of each string.
nb::object hash_strings(nb::bytes data, Words ends) {
  const Strings column = column_of(data, ends);
  Buffer<uint64_t> out(column.n);
  call([&] {
    for (size_t i = 0; i < column.n; ++i)
      out.get()[i] = xxh64(column.data + column.start(i), column.size(i), 0);
  });
  return out.array(column.n);
}

// Which of some strings are equal to the first of their group: group g is rows[lims[g], lims[g +
// 1]).
nb::object equal_strings(Bytes data, Words ends, Words rows, Words lims) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows.data()[i] >= ends.size()) throw nb::index_error("no such row");
  for (size_t g = 0; g + 1 < lims.size(); ++g)
    need(lims.data()[g] <= lims.data()[g + 1] && lims.data()[g + 1] <= rows.size(),
         "lims descend, or run past the rows");
  Buffer<uint8_t> out(rows.size());
  bool fine = true;
  call([&] {
    const auto string = [&](uint64_t row) {  // of files that are mapped
      const uint64_t start = row ? read_once(ends.data()[row - 1]) : 0,
                     end = read_once(ends.data()[row]);
      fine &= start <= end && end <= data.size();
      return fine
                 ? std::string_view(reinterpret_cast<const char*>(data.data()) + start, end - start)
                 : std::string_view();
    };
    memset(out.get(), 1, rows.size());
    for (size_t g = 0; g + 1 < lims.size() && fine; ++g)
      for (uint64_t j = lims.data()[g]; j < lims.data()[g + 1]; ++j)
        out.get()[j] = string(rows.data()[j]) == string(rows.data()[lims.data()[g]]);
  });
  need(fine, "ends run past the data");
  return out.array(rows.size());
}

// All strings, each followed by the separator.
nb::object join_strings(nb::bytes data, Words ends) {
  const Strings column = column_of(data, ends);
  const uint64_t size = (column.n ? column.ends[column.n - 1] : 0) + column.n;
  BytesBuffer out(size);
  uint8_t* to = out.get();
  call([&] {
    for (size_t i = 0; i < column.n; ++i) {
      memcpy(to, column.data + column.start(i), column.size(i));
      to += column.size(i);
      *to++ = kSeparator;
    }
  });
  return out.bytes(size);
}

// The values of frames, one after the other, and their offsets: each frame is behind its checksum,
// which its key seeds.
nb::tuple checked_values(Words keys, nb::object frames) {
  const size_t n = keys.size();
  need(nb::len(frames) == n, kUnequal);
  Buffer<uint64_t> offsets(n + 1);
  offsets.get()[0] = 0;
  std::vector<uint8_t> values;
  for (size_t i = 0; i < n; ++i) {
    const View frame(item_of(frames, i));
    const size_t at = values.size();
    values.resize(at + kStringChecksumBytes);
    store32(values.data() + at,
            static_cast<uint32_t>(xxh64(frame.data(), frame.size(), keys.data()[i])));
    values.insert(values.end(), frame.data(), frame.data() + frame.size());
    offsets.get()[i + 1] = values.size();
  }
  return nb::make_tuple(array_of(std::move(values)), offsets.array(n + 1));
}

}  // namespace

void bind_strings(nb::module_& m) {
  m.def("checked_frame", &checked_frame, "value"_a, "seed"_a);
  m.def("checked_frames", &checked_frames, "values"_a, "seeds"_array, "most_bytes"_a);
  m.def("string_at", &string_at, "content"_a, "count"_a, "rank"_a);
  m.def("join_contents", &join_contents, "contents"_a, "counts"_array);
  m.def("place_strings", &place_strings, "contents"_a, "counts"_array, "lims"_array, "ranks"_array,
        "places"_array, "out"_a);
  m.def("hash_strings", &hash_strings, "data"_a, "ends"_array);
  m.def("equal_strings", &equal_strings, "data"_array, "ends"_array, "rows"_array, "lims"_array);
  m.def("join_strings", &join_strings, "data"_a, "ends"_array);
  m.def("checked_values", &checked_values, "keys"_array, "frames"_a);
}

}  // namespace fpstore
