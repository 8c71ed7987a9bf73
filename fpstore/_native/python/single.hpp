// What a single probe needs of the tables, whose classes are in module_probers.cpp and table.hpp.
#pragma once
#include "python/module.hpp"
#include "search/request.hpp"

namespace fpstore {

struct Prober;

constexpr uint64_t kBriefBlocks = 1 << 7;  // a probe that reads no more of them takes microseconds

struct SingleTables {
  nb::object prober_object, identity_object;  // keep alive what follows
  const Prober* prober;
  const TableView* identity;
  const std::string* identity_path;
  unsigned width;
  uint64_t set_digest;
  bool is_brief;  // a few look-ups, not a scan
};
SingleTables single_tables(nb::object prober, nb::object identity);

// Finds what is within the radius of a row; needs no GIL.
Status search_one(const Prober& prober, const uint64_t* row, const ProbeOptions& options, Sink* sink, ProbeCounters* counters,
                  Fault* fault);
// Tells the logger which filters turned out to be damaged. The caller holds the GIL.
void tell_damage(const Prober& prober);
const std::string& path_of(const Prober& prober, unsigned table);

}  // namespace fpstore
