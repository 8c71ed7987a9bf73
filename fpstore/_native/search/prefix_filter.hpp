// Which prefixes entries of a table have: one bit for each, in memory only. A look-up whose prefix none has opens no block.
#pragma once
#include "isa/kernels.hpp"

namespace fpstore {

// Sets, of the 2^bits bits at to, those of the leading bits of all entries. bits is from 6, for whole words, to 40. Reads and verifies
// all blocks.
Status mark_prefixes(const Kernels& kernels, unsigned words, const TableView& table, unsigned bits, uint64_t* to, Stopper* stop, Fault* fault);

// Gives a probe such a filter, which must outlive it.
void take_filter(const uint64_t* filter, unsigned bits, TableProbe* probe);

}  // namespace fpstore
