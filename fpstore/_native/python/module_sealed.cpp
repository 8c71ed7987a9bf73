// The class of sealed LMDB files.
#include "format/sealed_file.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using Values = std::vector<SealedFile::Value>;

nb::object copy_of(const SealedFile::Value& value) {
  return value.data ? nb::object(bytes_of(value.data, value.size)) : nb::none();
}

// The bytes may still change while they are copied: each value has a checksum of its own.
nb::list copies_of(const Values& values) {
  nb::list out;
  for (const SealedFile::Value& value : values) out.append(copy_of(value));
  return out;
}

nb::object get(const SealedFile& file, nb::handle key, std::optional<uint64_t> number) {
  const OneRow row(key, file.key_words());
  // its pages may come from a disk
  return copy_of(
      call([&] { return file.find(row.words, number.value_or(SealedFile::kNoNumber)); }));
}

nb::list get_many(const SealedFile& file, Rows keys, Words numbers,
                  std::optional<uint64_t> enough) {
  need_words(keys, file.key_words());
  need(numbers.size() == count_of(keys), kUnequal);
  Values values;
  call(nullptr, [&](Stopper* stop) {
    file.find_many(keys.data(), numbers.data(), numbers.size(), enough.value_or(UINT64_MAX), stop,
                   &values);
  });
  return copies_of(values);
}

// (keys, values)
nb::tuple range(const SealedFile& file, nb::handle first, nb::handle last,
                std::optional<uint64_t> most) {
  const OneRow from(first, file.key_words()), to(last, file.key_words());
  Values values;
  std::vector<uint64_t> keys;
  call(nullptr, [&](Stopper* stop) {
    file.range(from.words, to.words, most.value_or(UINT64_MAX), stop, &values, &keys);
  });
  return nb::make_tuple(array_of(keys, file.key_words()), copies_of(values));
}

void check_all(SealedFile& file) {
  call(nullptr, [&](Stopper* stop) { file.check_all(stop); });
}

}  // namespace

void bind_sealed(nb::module_& m) {
  const std::pair<const char*, uint64_t> constants[] = {{"LMDB_LEAF", lmdb::kLeaf},
                                                        {"LMDB_FLAGS_AT", lmdb::kFlagsAt},
                                                        {"LMDB_LOWER_AT", lmdb::kLowerAt},
                                                        {"LMDB_PAGE_HEAD", lmdb::kPageHead},
                                                        {"LMDB_POINTER", lmdb::kPointer},
                                                        {"LMDB_NODE_HEAD", lmdb::kNodeHead},
                                                        {"LMDB_BIG_DATA", lmdb::kBigData},
                                                        {"LMDB_PAGE_BYTES_AT", lmdb::kPageBytesAt},
                                                        {"PADDING_BYTES", lmdb::kPaddingBytes}};
  for (const auto& [name, value] : constants) m.attr(name) = value;
  nb::class_<SealedFile>(m, "SealedFile")
      .def(nb::init<int, std::string, unsigned, uint64_t>(), "descriptor"_a, "path"_a,
           "key_words"_a, "longest"_a)
      .def_prop_ro("file_bytes", &SealedFile::file_bytes)
      .def_prop_ro("used", &SealedFile::used)
      .def_prop_ro("padding_bytes", &SealedFile::padding_bytes)
      .def_prop_ro("entries", &SealedFile::entries)
      .def_prop_ro("digest", &SealedFile::digest)
      .def("get", &get, "key"_a, "number"_a = nb::none())
      .def("get_many", &get_many, "keys"_array, "numbers"_array, "enough"_a = nb::none())
      .def("range", &range, "first"_a, "last"_a, "most"_a = nb::none())
      .def("check_all", &check_all);
}

}  // namespace fpstore
