#include "lsh/item_prober.hpp"

#include <algorithm>
#include <new>

#include "lsh/keys.hpp"

namespace fpstore {
namespace {

struct SinkGuard {
  Sink sink;
  ~SinkGuard() { release(&sink); }
};

template <class Row>
void keep_present(const VisibleChanges& changes, const Pause& pause, Sink* sink) {
  Match<Row>* const found = matches<Row>(*sink);
  uint64_t kept = 0;
  for (uint64_t i = 0; i < sink->count; ++i) {
    uint8_t presence;
    changes.delta->states(reinterpret_cast<const uint64_t*>(&found[i].fingerprint), 1, changes.end,
                          &presence, pause);
    if (presence != static_cast<uint8_t>(Presence::absent)) found[kept++] = found[i];
  }
  sink->count = kept;
}

// Everything that has the first bits of a query.
template <class Row>
void collect(const AnyProber& prober, const VisibleChanges& changes, const Queries& queries,
             unsigned bits, Stopper* stop, Sink* sink) {
  Fault fault;
  ProbeCounters counters;
  ProbeOptions options{prober.width()};
  options.stop = stop;
  const Status status = prober.search_few(queries, options, sink, &counters, &fault);
  if (status != Status::ok) throw FileFault{fault, prober.file_of(fault)};
  if (!changes.delta) return;
  const std::shared_lock<Gate> access(changes.delta->gate);
  const Pause none = [](uint64_t) {};
  if (changes.delta->removals()) keep_present<Row>(changes, none, sink);
  if (!changes.delta->share(queries.words, queries.count, bits, changes.end, sink, none))
    throw std::bad_alloc();
}

}  // namespace

void check_bands(size_t bands, size_t rows, size_t values) {
  need(bands > 0 && bands <= kMaxBands && rows > 0 && rows <= kMaxBands && bands * rows <= values,
       "bands and rows are 1 to 256, and a sketch has a value for each row");
}

ItemProber::ItemProber(const AnyProber* keys, const AnyProber* documents,
                       const VisibleChanges& keys_changes, const VisibleChanges& documents_changes,
                       unsigned key_bits, unsigned number_bits)
    : keys_(keys),
      documents_(documents),
      keys_changes_(keys_changes),
      documents_changes_(documents_changes),
      key_bits_(key_bits),
      number_bits_(number_bits) {
  need(keys->width() == 64 && documents->width() == kDocumentBits,
       "keys of 64 bits, and documents of 256");
  need(key_bits > 0 && key_bits < 64 && number_bits > 0 && number_bits <= kDocumentNumberBits &&
           key_bits + number_bits <= 64,
       "an entry has at most 64 bits");
}

std::vector<Match<Document>> ItemProber::probe(Span<const uint32_t> sketch,
                                               Span<const uint8_t> signature, size_t bands,
                                               size_t rows, unsigned radius, Stopper* stop) const {
  check_bands(bands, rows, sketch.size);
  need(signature.size <= (kDocumentBits - kDocumentNumberBits) / 8,
       "a signature has at most 28 bytes");
  uint8_t bytes[kDocumentBits / 8] = {};
  std::copy_n(signature.data, signature.size, bytes + kDocumentNumberBits / 8);
  Document item;
  for (unsigned i = 0; i < kDocumentBits / 64; ++i) item.word[i] = load64be(bytes + 8 * i);
  uint64_t prefixes[kMaxBands];
  band_keys(sketch.data, bands, rows, prefixes);
  for (size_t i = 0; i < bands; ++i) prefixes[i] = prefixes[i] >> (64 - key_bits_) << number_bits_;
  SinkGuard entries, found;
  collect<uint64_t>(*keys_, keys_changes_, {prefixes, bands}, 64 - number_bits_, stop,
                    &entries.sink);
  const std::vector<Document> wanted = documents_of(entries.sink);
  if (!wanted.empty())
    collect<Document>(*documents_, documents_changes_, {wanted[0].word, wanted.size()},
                      kDocumentNumberBits, stop, &found.sink);
  std::vector<Match<Document>> out;
  for (uint64_t i = 0; i < found.sink.count; ++i) {
    Match<Document> match = matches<Document>(found.sink)[i];
    Document difference = match.fingerprint ^ item;
    difference.word[0] &= ~top_mask(kDocumentNumberBits);
    match.distance = ones(difference);
    if (match.distance <= radius) out.push_back(match);
  }
  std::sort(out.begin(), out.end(), [](const Match<Document>& a, const Match<Document>& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
  });
  return out;
}

// A row for each document of the entries that begins with its number.
std::vector<Document> ItemProber::documents_of(const Sink& entries) const {
  std::vector<uint64_t> numbers(entries.count);
  for (uint64_t i = 0; i < entries.count; ++i)
    numbers[i] = matches<uint64_t>(entries)[i].fingerprint & ((uint64_t{1} << number_bits_) - 1);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<Document> out(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    out[i].word[0] = numbers[i] << (64 - kDocumentNumberBits);
  return out;
}

}  // namespace fpstore
