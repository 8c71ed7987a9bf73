// A probe of many queries on several threads.
#pragma once
#include "isa/kernels.hpp"

namespace fpstore {

// What Kernels::probe does, on this thread and up to threads - 1 others. They share out the tables:
// each look-up then has as many neighbours to share blocks with as on one thread. Only where the
// tables are too few, the queries are cut, too. If there are more matches than the sink may have,
// it runs out of memory: the count of the sink is its limit, and the matches are not in it.
Status probe_on_threads(const Kernels& kernels, unsigned words, const TableProbes& tables,
                        const Queries& queries, const ProbeOptions& options, unsigned threads,
                        Sink* sink, ProbeCounters* counters, Fault* fault);

}  // namespace fpstore
