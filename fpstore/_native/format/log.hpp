// The records of a log of changes, as bytes and as columns (docs/format.md, "Log"). Knows nothing
// of Python.
#pragma once
#include "format/common.hpp"

namespace fpstore {

// What a store holds after a record.
struct LogTotals {
  uint64_t fingerprints;
  uint64_t ids;
  uint64_t next_row;
  uint64_t id_kind;
};

// Successive whole records.
struct LogRecords {
  uint64_t records;
  uint64_t bytes;    // with the padding of the last
  uint64_t number;   // of the last
  uint64_t durable;  // what the last says of the log before it
  uint64_t words;    // of a fingerprint, the same in all
  uint64_t rows;
  uint64_t strings;
  uint64_t string_bytes;
  LogTotals totals;  // after the last
};

struct LogColumns {
  uint8_t* kinds;
  uint64_t* fingerprints;  // rows
  uint64_t* ids;
  uint64_t* string_lims;  // strings + 1
  uint8_t* string_data;
};

// Measures the whole records at the start of n bytes that stand at this place of the log: at most
// `most`, numbered from `number` on (0: the first may have any number), with fingerprints of that
// number of words (0: of any one number). Stops at the first that is not whole, of which nothing is
// believed. Reads only the n bytes.
LogRecords measure_log(const uint8_t* data, size_t n, uint64_t place, uint64_t seed,
                       uint64_t number, uint64_t words, uint64_t most);

// Copies the columns of records that measure_log() has measured.
void copy_log(const uint8_t* data, const LogRecords& measured, const LogColumns& out);

}  // namespace fpstore
