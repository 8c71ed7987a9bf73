// Where the matches of probes and scans go.
#pragma once
#include "search/request.hpp"
#include "search/sink.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

template <class W>
struct Emitter {
  const TableProbe* probes;
  ProbeOptions options;
  Sink* sink;
};

// One prefix look-up of a query in a table, on its way through the stages.
template <class W>
struct Item {
  const TableProbe* probe;
  uint64_t target;  // the least leading word with the prefix, and the greatest
  uint64_t last;
  typename W::Row base;  // the permuted query
  uint64_t first;  // the part of the key index to search, up to end; then the blocks that may hold
                   // entries with the prefix
  uint64_t end;
  uint32_t index;

  bool has_prefix(uint64_t leading) const { return leading - target <= last - target; }
};

inline void note(FoundPlaces* places, const TableView* table, const EntryPlace& place) {
  if (places->count == FoundPlaces::kMost) return;
  const bool known = table == places->table;
  places->of[places->count++] = known ? place : EntryPlace{UINT64_MAX, 0};
  if (known) places->on_block(places->context, place.block);
}

// Reports an entry, of which the leading word and its distance and where it and its rest stand are
// known, if it is within the radius, unless the pair also meets in an earlier table: it is left to
// that one. False when memory runs out.
template <class W>
inline bool emit(const Emitter<W>& out, const Item<W>& item, uint64_t leading, unsigned distance,
                 const uint8_t* rest, const EntryPlace& place) {
  if constexpr (W::kWide) {
    distance += rest_distance<W>(rest, item.base);
    if (distance > out.options.radius) return true;
  }
  const auto entry = row_of<W>(leading, rest);
  if (item.probe > out.probes) {
    const auto difference = apply(item.probe->table->inverse, entry ^ item.base);
    for (const TableProbe* earlier = out.probes; earlier < item.probe; ++earlier)
      if (ones(difference & *rows<typename W::Row>(earlier->condition)) <= earlier->flips)
        return true;
  }
  if (FPSTORE_UNLIKELY(out.options.places != nullptr))
    note(out.options.places, item.probe->table, place);
  // The fingerprint is made from the entry: reading the query would often wait for memory.
  return push(out.sink, apply(item.probe->table->inverse, entry), item.index, distance);
}

// Entries of a block whose leading words are decoded, and where the words behind them stand.
struct LeadingWords {
  const uint64_t* values;
  const uint8_t* rests;
  uint32_t n;
  uint64_t block;
};

// A query of a scan, whose matches go to the sink.
template <class W>
struct ScanQuery {
  const Permutation* inverse;
  typename W::Row query;
  typename W::Row permuted;
  uint32_t index;
  unsigned radius;
  Sink* sink;
};

// Reports an entry of a scan, of which the leading word and its distance and where the rest stands
// are known, if it is within the radius. False when memory runs out.
template <class W>
inline bool emit(const ScanQuery<W>& q, uint64_t leading, unsigned distance, const uint8_t* rest) {
  if constexpr (W::kWide) {
    distance += rest_distance<W>(rest, q.permuted);
    if (distance > q.radius) return true;
  }
  return push(q.sink, q.query ^ apply(*q.inverse, row_of<W>(leading, rest) ^ q.permuted), q.index,
              distance);
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
