// Keys of bands, and the search for one item in an LSH index.
#include "lsh/item_prober.hpp"
#include "lsh/keys.hpp"
#include "python/tables.hpp"

namespace fpstore {
namespace {

nb::object keys_of(nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> sketches,
                   size_t bands, size_t rows) {
  const size_t n = sketches.shape(0), values = sketches.shape(1);
  check_bands(bands, rows, values);
  Buffer<uint64_t> out(n * bands);
  call([&] {
    for (size_t i = 0; i < n; ++i)
      band_keys(sketches.data() + i * values, bands, rows, out.get() + i * bands);
  });
  return out.array(n, bands);
}

VisibleChanges visible(const Delta* delta, uint32_t version) {
  return {delta, delta ? delta->end_of(version) : 0};
}

// (row, distance) of the documents that share a key and whose signatures are within the radius, by
// distance and number.
nb::list probe(const ItemProber& prober, Counts sketch, Bytes signature, size_t bands, size_t rows,
               unsigned radius) {
  Stopper stopping = stopper(nullptr);
  const std::vector<Match<Document>> found = call([&] {
    return prober.probe(span_of(sketch), span_of(signature), bands, rows, radius, &stopping);
  });
  nb::list out;
  for (const Match<Document>& match : found)
    out.append(
        nb::make_tuple(number_of(match.fingerprint.word, kDocumentBits / 64), match.distance));
  return out;
}

}  // namespace

void bind_lsh(nb::module_& m) {
  m.def("band_keys", &keys_of, "sketches"_array, "bands"_a, "rows"_a);
  nb::class_<ItemProber>(m, "ItemProber")
      .def(
          "__init__",
          [](ItemProber* self, const AnyProber* keys, const AnyProber* documents,
             const Delta* keys_changes, uint32_t keys_version, const Delta* documents_changes,
             uint32_t documents_version, unsigned key_bits, unsigned number_bits) {
            new (self)
                ItemProber(keys, documents, visible(keys_changes, keys_version),
                           visible(documents_changes, documents_version), key_bits, number_bits);
          },
          "keys"_a, "documents"_a, "keys_changes"_a.none(), "keys_version"_a,
          "documents_changes"_a.none(), "documents_version"_a, "key_bits"_a, "number_bits"_a,
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
          nb::keep_alive<1, 6>())
      .def("probe", &probe, "sketch"_array, "signature"_array, "bands"_a, "rows"_a, "radius"_a);
}

}  // namespace fpstore
