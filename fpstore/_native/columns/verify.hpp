// Reading everything of a column table or a row file.
#pragma once
#include "columns/request.hpp"

namespace fpstore {

// Checks the pages, the directory, the order of the entries, the padding and, but of references, the set digest. With the rows
// that references lead to, also that each has the bucket and the tag of its reference. Pages that view has seen are not read again.
Status verify_columns(const ColumnHeader& header, const ColumnView& t, const ColumnView* rows, Stopper* stop, Fault* fault);

// Sum of XXH64 over fingerprints of some words, little-endian, mod 2^64.
uint64_t words_digest(const uint64_t* words, size_t n, unsigned words_each);

}  // namespace fpstore
