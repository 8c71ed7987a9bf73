// The tables of a design, with their look-ups.
#include "python/filter.hpp"
#include "python/single.hpp"
#include "python/table.hpp"
#include "search/on_threads.hpp"
#include "search/results.hpp"

namespace fpstore {

static Order order_named(const std::string& name) {
  const std::pair<const char*, Order> orders[] = {{"best", Order::best}, {"asked", Order::asked}, {"near", Order::near}, {"sorted", Order::sorted}};
  for (const auto& [known, order] : orders)
    if (name == known) return order;
  throw nb::value_error("order is best, asked, near or sorted");
}

// The tables of a design with, for one query radius, what to look up in each.
struct Prober {
  std::vector<nb::object> owners;
  std::vector<Filter*> filters;
  std::vector<const Table*> tables;
  std::vector<std::vector<uint64_t>> variants;
  std::vector<TableProbe> probes;
  // Of calls of few queries; many keep a disk busy with what the system reads ahead of them.
  static constexpr size_t kFewQueries = 1 << 10;
  mutable PageWatch pages;
  mutable std::atomic<uint64_t> fetches{0}, blocks{0};  // requests for pages ahead, and blocks read, of all calls

  void add(nb::object table, unsigned prefix_bits, unsigned flips, Words masks, nb::object filter) {
    const Table* t = nb::cast<const Table*>(table);
    if (prefix_bits > 64 || prefix_bits > t->header.width) throw nb::value_error("prefix_bits is at most 64, and the width");
    for (size_t i = 0; i < masks.size(); ++i)
      if ((masks.data()[i] & ~top_mask(prefix_bits)) || (i && masks.data()[i] <= masks.data()[i - 1]))
        throw nb::value_error("variants ascend, and change only bits of the prefix");
    if (!tables.empty() && t->header.width != width()) throw nb::value_error("tables of several widths");
    if (!tables.empty() && t->view.codec != tables[0]->view.codec) throw nb::value_error("tables of several codecs");
    Filter* const f = filter.is_none() ? nullptr : nb::cast<Filter*>(filter);
    if (f && f->header.prefix_bits > prefix_bits) throw nb::value_error("a filter is of no more bits than the prefix");
    owners.push_back(table);
    if (f) owners.push_back(filter);
    tables.push_back(t);
    variants.emplace_back(masks.data(), masks.data() + masks.size());
    probes.push_back(TableProbe{&t->view, prefix_bits, flips, {}, nullptr, masks.size()});
    const Wide<kMaxWords> condition = apply(t->view.inverse, Wide<kMaxWords>{{top_mask(prefix_bits)}});
    std::copy_n(condition.word, kMaxWords, probes.back().condition);
    for (size_t i = 0; i < probes.size(); ++i) probes[i].variants = variants[i].data();
    if (!f) return;
    filters.push_back(f);
    probes.back().filter = &f->view;
    probes.back().passing = f->view.passing;
  }

  // Tells the logger which filters turned out to be damaged. The caller holds the GIL.
  void tell_damage() const {
    for (Filter* filter : filters) filter->tell_damage();
  }

  // Of no tables, any will do.
  unsigned width() const { return tables.empty() ? 64 : tables[0]->header.width; }
  unsigned words() const { return words_of(width()); }
  // Whether a look-up reads its whole table anyway.
  bool scans() const { return probes.size() == 1 && probes[0].prefix_bits == 0 && probes[0].variant_count == 1; }

  // Block by block for many queries: decoding takes longer than comparing.
  static constexpr size_t kScanQueries = 1 << 8;
  Status scan(const uint64_t* queries, size_t n, const ProbeOptions& options, Sink* sink, ProbeCounters* counters,
              Fault* fault) const {
    const TableView& view = *probes[0].table;
    Status status = Status::ok;
    fault->table = 0;
    for (size_t q = 0; q < n && status == Status::ok; q += kScanQueries) {
      const uint64_t first = sink->count;
      const size_t count = std::min(kScanQueries, n - q);
      status = tables[0]->kernels().scan(view, {0, view.block_count}, {queries + q * words(), count}, {options.radius, options.stop}, sink, fault);
      shift_queries(sink, words(), first, static_cast<uint32_t>(q));
      counters->blocks += view.block_count;
      counters->candidates += view.fingerprint_count * count;
    }
    return status;
  }

  // Needs no GIL.
  Status search(const uint64_t* queries, size_t n, ProbeOptions options, unsigned threads, Sink* sink, ProbeCounters* counters,
                Fault* fault) const {
    if (n <= kFewQueries) options.pages = &pages;
    const bool all = scans() && options.order == Order::best;
    const Status status =
        all ? scan(queries, n, options, sink, counters, fault)
            : probe_on_threads(kernels(width()), words(), {probes.data(), 0, static_cast<unsigned>(probes.size())}, {queries, n}, options,
                               threads, sink, counters, fault);
    blocks.fetch_add(counters->blocks, std::memory_order_relaxed);
    if (counters->fetches) fetches.fetch_add(counters->fetches, std::memory_order_relaxed);
    return status;
  }

  // False when the sink is full.
  bool run(const uint64_t* queries, size_t n, const ProbeOptions& options, unsigned threads, Sink* sink, ProbeCounters* counters) const {
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = search(queries, n, options, threads, sink, counters, &fault);
    }
    tell_damage();
    if (status == Status::out_of_memory && sink->count >= sink->limit) return false;
    if (status != Status::ok) raise_fault(fault, tables[fault.table]->path);
    return true;
  }

  // (lims, fingerprints, distances, blocks read, candidates), or None when there are more than most matches.
  nb::object probe(Rows queries, unsigned radius, std::optional<uint64_t> most, const std::string& order,
                   bool fetch, unsigned threads, const Stop* stop) const {
    need_words(queries, words());
    if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
    SinkGuard guard;
    ProbeCounters counters;
    ProbeOptions options{radius};
    options.order = order_named(order);
    options.fetch = fetch;
    Stopper stopping = stopper(stop);
    options.stop = &stopping;
    if (most) guard.sink.limit = *most;
    if (!run(queries.data(), count_of(queries), options, threads, &guard.sink, &counters)) return nb::none();
    nb::tuple columns = Table::finish(guard.sink, width(), count_of(queries), threads, &stopping);
    return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
  }

  // [(fingerprint, distance, block, rank), ...] by distance, fingerprint; block and rank are places in the identity table.
  nb::list probe_one(nb::handle query, unsigned radius, const Table& identity) const {
    SinkGuard guard;
    ProbeCounters counters;
    ProbeOptions options{radius};
    Stopper stopping = stopper(nullptr);
    options.stop = &stopping;
    const OneRow row(query, words());
    run(row.words, 1, options, 1, &guard.sink, &counters);
    const size_t n = guard.sink.count;
    OrderedMatches found(guard.sink, width(), words(), 1, 1, &stopping);
    check(found.status, Fault{found.status}, "");
    std::vector<uint64_t> blocks(n);
    std::vector<uint32_t> ranks(n);
    Fault fault;
    const uint64_t* const fingerprints = found.fingerprints.get();
    const Status status = identity.kernels().locate(identity.view, {fingerprints, n}, blocks.data(), ranks.data(), &stopping, &fault);
    check(status, fault, identity.path);
    nb::list out;
    for (size_t i = 0; i < n; ++i) {
      if (should_stop(&stopping, kBlockWork)) throw Interrupted();
      const uint64_t* const fingerprint = fingerprints + i * words();
      if (blocks[i] == UINT64_MAX) raise_fault(Fault{Status::bad_digest, UINT64_MAX, *fingerprint, 0}, identity.path);
      out.append(nb::make_tuple(number_of(fingerprint, words()), found.distance(i), blocks[i], ranks[i]));
    }
    return out;
  }
};

SingleTables single_tables(nb::object prober, nb::object identity) {
  const Prober* const p = nb::cast<const Prober*>(prober);
  const Table* const t = nb::cast<const Table*>(identity);
  if (!p->tables.empty() && p->width() != t->header.width) throw nb::value_error("tables of several widths");
  double blocks = 0;  // that are opened, about
  for (const TableProbe& probe : p->probes) blocks += static_cast<double>(probe.variant_count) * probe.passing;
  const bool is_brief = !p->scans() && blocks <= kBriefBlocks;
  return {std::move(prober), std::move(identity), p, &t->view, &t->path, t->header.width, t->header.set_digest, is_brief};
}

Status search_one(const Prober& prober, const uint64_t* row, const ProbeOptions& options, Sink* sink, ProbeCounters* counters,
                  Fault* fault) {
  return prober.search(row, 1, options, 1, sink, counters, fault);
}

void tell_damage(const Prober& prober) { prober.tell_damage(); }

const std::string& path_of(const Prober& prober, unsigned table) { return prober.tables[table]->path; }

void bind_probers(nb::module_& m) {
  nb::class_<Prober>(m, "Prober")
      .def(nb::init<>())
      .def("add", &Prober::add, "table"_a, "prefix_bits"_a, "flips"_a, nb::arg("variants").noconvert(), "filter"_a = nb::none())
      .def("probe", &Prober::probe, nb::arg("queries").noconvert(), "radius"_a, "most"_a = nb::none(),
           "order"_a = "best", "fetch"_a = false, "threads"_a = 1, "stop"_a = nb::none())
      .def("probe_one", &Prober::probe_one, "query"_a, "radius"_a, "identity"_a)
      .def_prop_ro("fetches", [](const Prober& p) { return p.fetches.load(std::memory_order_relaxed); })
      .def_prop_ro("blocks", [](const Prober& p) { return p.blocks.load(std::memory_order_relaxed); });
}

}  // namespace fpstore
