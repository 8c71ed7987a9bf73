// Keys of bands, and the search for one item in an LSH index.
#include "lsh/keys.hpp"
#include "python/access.hpp"
#include "python/tables.hpp"

namespace fpstore {
namespace {

using Document = Wide<4>;
constexpr size_t kMostBands = 256;
constexpr unsigned kDocumentBits = 256,
                   kNumberBits = 32;  // the number of a document is in the first bits

nb::object keys_of(nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> sketches,
                   size_t bands, size_t rows) {
  const size_t n = sketches.shape(0), values = sketches.shape(1);
  need(bands > 0 && bands <= kMostBands && rows > 0 && rows <= kMostBands && bands * rows <= values,
       "bands and rows are 1 to 256, and a sketch has a value for each row");
  Buffer<uint64_t> out(n * bands);
  {
    ReleasedGil released;
    for (size_t i = 0; i < n; ++i)
      band_keys(sketches.data() + i * values, bands, rows, out.get() + i * bands);
  }
  return out.array(n, bands);
}

// The changes of a store, as a snapshot sees them; none of a store without changes.
struct SeenChanges {
  const Delta* delta = nullptr;
  uint32_t end = 0;

  SeenChanges(nb::handle given, uint32_t version) {
    if (given.is_none()) return;
    delta = nb::cast<const Delta*>(given);
    end = delta->end_of(version);
  }
};

// Searches a state of an index for one item after the other.
class ItemProber {
 public:
  ItemProber(nb::object keys, nb::object documents, nb::object keys_changed, uint32_t keys_version,
             nb::object documents_changed, uint32_t documents_version, unsigned key_bits,
             unsigned number_bits)
      : owners_(nb::make_tuple(keys, documents, keys_changed, documents_changed)),
        keys_(nb::cast<const AnyProber*>(keys)),
        documents_(nb::cast<const AnyProber*>(documents)),
        keys_changes_(keys_changed, keys_version),
        documents_changes_(documents_changed, documents_version),
        key_bits_(key_bits),
        number_bits_(number_bits) {
    need(keys_->width() == 64 && documents_->width() == kDocumentBits,
         "keys of 64 bits, and documents of 256");
    need(key_bits > 0 && key_bits < 64 && number_bits > 0 && number_bits <= kNumberBits &&
             key_bits + number_bits <= 64,
         "an entry has at most 64 bits");
  }

  // (row, distance) of the documents that share a key and whose signatures are within the radius,
  // by distance and number.
  nb::list probe(Counts sketch, Bytes signature, size_t bands, size_t rows, unsigned radius) const {
    need(bands > 0 && bands <= kMostBands && rows > 0 && rows <= kMostBands &&
             bands * rows <= sketch.size(),
         "bands and rows are 1 to 256, and a sketch has a value for each row");
    need(signature.size() <= (kDocumentBits - kNumberBits) / 8, "a signature has at most 28 bytes");
    uint8_t bytes[kDocumentBits / 8] = {};
    std::copy_n(signature.data(), signature.size(), bytes + kNumberBits / 8);
    Document row;
    for (unsigned i = 0; i < kDocumentBits / 64; ++i) row.word[i] = load64be(bytes + 8 * i);
    uint64_t prefixes[kMostBands];
    band_keys(sketch.data(), bands, rows, prefixes);
    for (size_t i = 0; i < bands; ++i)
      prefixes[i] = prefixes[i] >> (64 - key_bits_) << number_bits_;
    SinkGuard entries, found;
    collect<uint64_t>(*keys_, keys_changes_, {prefixes, bands}, 64 - number_bits_, 64,
                      &entries.sink);
    const std::vector<Document> wanted = documents_of(entries.sink);
    if (!wanted.empty())
      collect<Document>(*documents_, documents_changes_, {wanted[0].word, wanted.size()},
                        kNumberBits, kDocumentBits, &found.sink);
    return near(&found.sink, row, radius);
  }

 private:
  // Everything that has the first bits of a query.
  template <class Row>
  static void collect(const AnyProber& prober, const SeenChanges& changes, const Queries& queries,
                      unsigned bits, unsigned width, Sink* sink) {
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      ProbeCounters counters;
      Stopper stopping = stopper(nullptr);
      ProbeOptions options{width};
      options.stop = &stopping;
      status = prober.search_few(queries, options, sink, &counters, &fault);
    }
    if (status != Status::ok) raise_fault(fault, prober.path_of(fault), Part::block);
    if (!changes.delta) return;
    const Delta& delta = *changes.delta;
    const Access access(delta, kBrief);
    const Pause none = [](uint64_t) {};
    if (delta.removals()) keep_present<Row>(delta, changes.end, sink);
    if (!delta.share(queries.words, queries.count, bits, changes.end, sink, none))
      throw std::bad_alloc();
  }

  template <class Row>
  static void keep_present(const Delta& delta, uint32_t end, Sink* sink) {
    Match<Row>* const found = matches<Row>(*sink);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sink->count; ++i) {
      uint8_t said;
      delta.states(reinterpret_cast<const uint64_t*>(&found[i].fingerprint), 1, end, &said,
                   [](uint64_t) {});
      if (said != static_cast<uint8_t>(Presence::absent)) found[kept++] = found[i];
    }
    sink->count = kept;
  }

  // A row for each document of the entries that begins with its number.
  std::vector<Document> documents_of(const Sink& entries) const {
    std::vector<uint64_t> numbers(entries.count);
    for (uint64_t i = 0; i < entries.count; ++i)
      numbers[i] = matches<uint64_t>(entries)[i].fingerprint & ((uint64_t{1} << number_bits_) - 1);
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    std::vector<Document> out(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) out[i].word[0] = numbers[i] << (64 - kNumberBits);
    return out;
  }

  static nb::list near(Sink* sink, const Document& row, unsigned radius) {
    Match<Document>* const found = matches<Document>(*sink);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sink->count; ++i) {
      Document difference = found[i].fingerprint ^ row;
      difference.word[0] &= ~top_mask(kNumberBits);
      found[i].distance = ones(difference);
      if (found[i].distance <= radius) found[kept++] = found[i];
    }
    std::sort(found, found + kept, [](const Match<Document>& a, const Match<Document>& b) {
      return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
    });
    nb::list out;
    for (uint64_t i = 0; i < kept; ++i)
      out.append(nb::make_tuple(number_of(found[i].fingerprint.word, kDocumentBits / 64),
                                found[i].distance));
    return out;
  }

  nb::object owners_;  // keep alive what follows
  const AnyProber* keys_;
  const AnyProber* documents_;
  SeenChanges keys_changes_, documents_changes_;
  unsigned key_bits_, number_bits_;
};

}  // namespace

void bind_lsh(nb::module_& m) {
  m.def("band_keys", &keys_of, "sketches"_array, "bands"_a, "rows"_a);
  nb::class_<ItemProber>(m, "ItemProber")
      .def(nb::init<nb::object, nb::object, nb::object, uint32_t, nb::object, uint32_t, unsigned,
                    unsigned>(),
           "keys"_a, "documents"_a, "keys_changes"_a.none(), "keys_version"_a,
           "documents_changes"_a.none(), "documents_version"_a, "key_bits"_a, "number_bits"_a)
      .def("probe", &ItemProber::probe, "sketch"_array, "signature"_array, "bands"_a, "rows"_a,
           "radius"_a);
}

}  // namespace fpstore
