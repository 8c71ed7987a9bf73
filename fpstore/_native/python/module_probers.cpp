// Filters, and the tables of a design with their look-ups.
#include "python/tables.hpp"

namespace fpstore {
namespace {

Order order_named(const std::string& name) {
  const std::pair<const char*, Order> orders[] = {{"best", Order::best},
                                                  {"asked", Order::asked},
                                                  {"near", Order::near},
                                                  {"sorted", Order::sorted}};
  for (const auto& [known, order] : orders)
    if (name == known) return order;
  throw nb::value_error("order is best, asked, near or sorted");
}

// (lims, fingerprints, distances, blocks read, candidates), or None when there are more than most
// matches.
nb::object probe(const Prober& prober, Rows rows, unsigned radius, std::optional<uint64_t> most,
                 const std::string& order, bool fetch, unsigned threads, const Stop* stop) {
  const Queries queries = queries_of(rows, prober.width());
  ProbeCounters counters;
  ProbeOptions options{radius};
  options.order = order_named(order);
  options.fetch = fetch;
  const auto file = [&](const Fault& fault) { return prober.file_of(fault); };
  std::optional<OrderedMatches> found =
      matches_of(file, prober.width(), prober.words(), queries.count, threads, most, stop,
                 [&](Sink* sink, Stopper* stopping, Fault* fault) {
                   options.stop = stopping;
                   return prober.search(queries, options, threads, sink, &counters, fault);
                 });
  log_damaged_filters(prober);
  if (!found) return nb::none();
  const nb::tuple columns = found->columns();
  return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
}

}  // namespace

void bind_probers(nb::module_& m) {
  using H = FilterHeader;
  nb::class_<Filter> filter(m, "Filter");
  bind_open(filter);
  filter
      .def_prop_ro("shape",
                   [](const Filter& f) {
                     return nb::make_tuple(f.header.prefix_bits, f.header.bucket_bits,
                                           f.header.bits_per_prefix);
                   })
      .def_prop_ro("passing", [](const Filter& f) { return f.view.passing; })
      .def_prop_ro("damaged", [](const Filter& f) { return is_damaged(f.view); });
  bind_header<H>(filter);
  bind_fields(filter, "fingerprint_count", &H::fingerprint_count);
  nb::class_<AnyProber>(m, "AnyProber");
  nb::class_<Prober, AnyProber>(m, "Prober")
      .def(nb::init<>())
      .def(
          "add",
          [](Prober& prober, const Table* table, unsigned prefix_bits, unsigned flips, Words masks,
             Filter* filter) { prober.add(table, prefix_bits, flips, span_of(masks), filter); },
          "table"_a, "prefix_bits"_a, "flips"_a, "variants"_array, "filter"_a.none() = nb::none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
      .def("probe", &probe, "queries"_array, "radius"_a, "most"_a = nb::none(), "order"_a = "best",
           "fetch"_a = false, "threads"_a = 1, optional_stop())
      .def_prop_ro("fetches",
                   [](const Prober& p) { return p.fetches.load(std::memory_order_relaxed); })
      .def_prop_ro("blocks",
                   [](const Prober& p) { return p.blocks.load(std::memory_order_relaxed); });
}

}  // namespace fpstore
