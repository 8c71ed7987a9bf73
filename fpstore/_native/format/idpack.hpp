// Id records: the document ids of one block of the identity table, bit-packed in rank order
// (docs/format.md, "Id record").
#pragma once
#include <vector>

#include "format/common.hpp"

namespace fpstore {

constexpr unsigned kRecordHeaderBytes = 16;

// Writes the record of n fingerprints to *out: fingerprint i has the next counts[i] ids, at least
// one, ascending. Returns how many ids they have.
uint64_t pack_record(const uint64_t* ids, const uint64_t* counts, uint64_t n, uint64_t seed,
                     std::vector<uint8_t>* out);

// A checked record: after ok, counts and ids can be read without further checks. If the bytes
// change afterwards, the values differ, but no read leaves the record.
struct IdRecord {
  const uint8_t* bits;
  const uint8_t* end;
  uint64_t base;
  uint64_t total;  // ids in the record
  uint32_t count;  // fingerprints in the record
  unsigned id_bits;
  unsigned count_bits;
};
Status open_record(const uint8_t* data, uint64_t size, uint64_t seed, IdRecord* record,
                   Fault* fault);

// How many ids the fingerprint of this rank has, and the place of the first in the record; rank <
// record.count.
uint64_t ids_of_rank(const IdRecord& record, uint32_t rank, uint64_t* first);
uint64_t id_at(const IdRecord& record, uint64_t place);
uint64_t count_at(const IdRecord& record, uint32_t rank);

// All of a record: counts of record.count places, ids of record.total.
void unpack_counts(const IdRecord& record, uint64_t* counts);
void unpack_ids(const IdRecord& record, uint64_t* ids);

}  // namespace fpstore
