// What is asked of column tables.
#pragma once
#include "columns/view.hpp"
#include "search/request.hpp"

namespace fpstore {

constexpr unsigned kMaxRing = 64;  // tables of a ring
constexpr unsigned kLookupEntries =
    24;  // tags whose comparison costs as much as a look-up: how thresholds are chosen
constexpr size_t kOrderedFrom = 1 << 10;  // queries from which they are asked in the order of a
                                          // table's buckets; fewer have none to share
constexpr unsigned kSpare =
    3;  // thresholds reach so far above an even share: what costs most is never worth it

// One table of a ring, and where its bucket and its tag lie in a fingerprint.
struct RingTable {
  const ColumnView* table;
  uint64_t bucket_mask[kMaxWords];
  uint64_t tag_mask[kMaxWords];
};

// Tables of one set. Why a probe of them is exact: let B(i) be the bits that bucket i has and those
// that tag i - 1 has, counted around the ring. No two of the B(i) share a bit. Let d(i) be the
// number of bits of B(i) in which a fingerprint within the radius differs from the query: their sum
// is at most the radius. Of the numbers x(i) = d(i) - (t(i) + 1) the sum is negative, as the
// thresholds are such that the t(i) + 1 add up to more than the radius. Go around the ring from
// behind a place at which the sums of x from 0 on are largest: every sum from there on is negative
// (Qin and Xiao, Pigeonring, VLDB 2018). So there is an i with
//     d(i) <= t(i)   and   d(i) + d(i + 1) <= t(i) + t(i + 1) + 1.
// The bucket of table i has bits of B(i) only, and its tag bits of B(i + 1) only, so both hold all
// the more for the bits in which bucket and tag differ, however few bits of a block they have. A
// table with t(i) = -1 is never that i, since d(i) is not negative, and need not be looked up. With
// a single table i + 1 is i, and bucket and tag together are B(0): the same holds.
struct Ring {
  const RingTable* tables;
  unsigned count;
  const ColumnView* rows;  // what references lead to
};

struct ColumnOptions {
  unsigned radius;
  const int16_t* thresholds;  // of the tables; -1: not looked up
  // Choose the thresholds of each query by how many entries it would meet, from the directories.
  bool balance;
  Stopper* stop;
};

struct ColumnCounters {
  uint64_t lookups = 0;
  uint64_t candidates = 0;  // entries whose tag was compared
  uint64_t survivors = 0;   // entries whose distance was computed
};

// The hot loops, one set per instruction set; column_kernels() is the one in use (isa/kernels.hpp).
using ColumnProbe = Status (*)(const Ring&, const Queries&, const ColumnOptions&, Sink*,
                               ColumnCounters*, Fault*);
using NearRows = size_t (*)(const uint8_t* rows, size_t n, const uint64_t* query, unsigned radius,
                            uint32_t* places, uint16_t* distances);

struct ColumnKernels {
  // Every fingerprint of the set within the radius, once: copies as they are, references by the
  // number of their row. A fault names the table, or the number of tables for the row file.
  // out_of_memory also when the sink is full. These are for fingerprints of 1, 2 and 4 words: at
  // half their number.
  ColumnProbe probe[3];
  NearRows near_rows[3];  // of 2 and 4 words
};

// What follows reads tables and row files in order, and finds single fingerprints.
struct Entries {
  uint64_t first;
  uint64_t end;
};

// The keys of the entries of a table, or the words of rows, verified. The entries must exist.
Status read_entries(const ColumnView& t, const Entries& entries, uint64_t* out, Fault* fault);

// The place of each fingerprint in a table of copies or in a row file, or UINT64_MAX.
Status locate_entries(const ColumnView& t, const Queries& fingerprints, uint64_t* places,
                      Stopper* stop, Fault* fault);

// Compares entries of copies or rows with every query.
Status scan_entries(const ColumnView& t, const Entries& entries, const Queries& queries,
                    const ScanOptions& options, Sink* sink, Fault* fault);

}  // namespace fpstore
