// The search for one item in an LSH index.
#pragma once
#include "delta/delta.hpp"
#include "format/span.hpp"
#include "search/prober.hpp"

namespace fpstore {

constexpr size_t kMaxBands = 256;
constexpr unsigned kDocumentBits = 256,
                   kDocumentNumberBits = 32;  // the number of a document is in the first bits
using Document = Wide<kDocumentBits / 64>;

// The changes of a store that a snapshot sees; none of a store without changes.
struct VisibleChanges {
  const Delta* delta = nullptr;
  uint32_t end = 0;
};

// Searches a state of an index for one item after the other. What it is made of outlives it;
// threads may share it.
class ItemProber {
 public:
  ItemProber(const AnyProber* keys, const AnyProber* documents, const VisibleChanges& keys_changes,
             const VisibleChanges& documents_changes, unsigned key_bits, unsigned number_bits);

  // The documents that share a key and whose signatures are within the radius, by distance and
  // number. Throws the fault of a table.
  std::vector<Match<Document>> probe(Span<const uint32_t> sketch, Span<const uint8_t> signature,
                                     size_t bands, size_t rows, unsigned radius,
                                     Stopper* stop) const;

 private:
  std::vector<Document> documents_of(const Sink& entries) const;

  const AnyProber* keys_;
  const AnyProber* documents_;
  VisibleChanges keys_changes_, documents_changes_;
  unsigned key_bits_, number_bits_;
};

void check_bands(size_t bands, size_t rows, size_t values);

}  // namespace fpstore
