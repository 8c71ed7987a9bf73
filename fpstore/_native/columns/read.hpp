// Reading column tables and row files in order, and finding single fingerprints.
#pragma once
#include "columns/request.hpp"
#include "search/request.hpp"

namespace fpstore {

struct Entries {
  uint64_t first;
  uint64_t end;
};

// The keys of the entries of a table, or the words of rows, verified. The entries must exist.
Status read_entries(const ColumnView& t, const Entries& entries, uint64_t* out, Fault* fault);

// The place of each fingerprint in a table of copies or in a row file, or UINT64_MAX.
Status locate_entries(const ColumnView& t, const Queries& fingerprints, uint64_t* places, Stopper* stop, Fault* fault);

// Compares entries of copies or rows with every query.
Status scan_entries(const ColumnView& t, const Entries& entries, const Queries& queries, const ScanOptions& options, Sink* sink,
                    Fault* fault);

}  // namespace fpstore
