// The hot loops of column tables, one set per instruction set; column_kernels() is the one in use (isa/kernels.hpp).
#pragma once
#include "columns/request.hpp"

namespace fpstore {

using ColumnProbe = Status (*)(const Ring&, const Queries&, const ColumnOptions&, Sink*, ColumnCounters*, Fault*);
using NearRows = size_t (*)(const uint8_t* rows, size_t n, const uint64_t* query, unsigned radius, uint32_t* places,
                            uint16_t* distances);

struct ColumnKernels {
  // Every fingerprint of the set within the radius, once: copies as they are, references by the number of their row. A fault names
  // the table, or the number of tables for the row file. out_of_memory also when the sink is full.
  // These are for fingerprints of 1, 2 and 4 words: at half their number.
  ColumnProbe probe[3];
  NearRows near_rows[3];  // of 2 and 4 words
};

}  // namespace fpstore
