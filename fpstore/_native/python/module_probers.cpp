// Filters, and the tables of a design with their look-ups.
#include "format/filter.hpp"
#include "python/tables.hpp"
#include "search/on_threads.hpp"

namespace fpstore {
namespace {

constexpr size_t kFewQueries =
    1 << 10;  // more of them keep a disk busy with what the system reads ahead
constexpr size_t kScanQueries =
    1 << 8;  // are compared with a block at once: decoding takes longer than comparing

Order order_named(const std::string& name) {
  const std::pair<const char*, Order> orders[] = {{"best", Order::best},
                                                  {"asked", Order::asked},
                                                  {"near", Order::near},
                                                  {"sorted", Order::sorted}};
  for (const auto& [known, order] : orders)
    if (name == known) return order;
  throw nb::value_error("order is best, asked, near or sorted");
}

// A filter and its mapping.
struct Filter {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  FilterHeader header;
  std::unique_ptr<uint64_t[]> seen;
  FilterView view;
  bool told = false;

  Filter(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
    call(path, Part::block, [&](Fault* fault) {
      return parse_filter_header(data.data(), data.size(), &header, fault);
    });
    seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
    make_view(header, data.data(), seen.get(), &view);
  }

  // Tells the logger of damage that a look-up met, once. The caller holds the GIL.
  void tell_damage() {
    if (!is_damaged(view) || std::exchange(told, true)) return;
    nb::module_::import_("fpstore.base.diagnostics").attr("tell_left_out")(path);
  }
};

// The tables of a design with, for one query radius, what to look up in each.
struct Prober : AnyProber {
  std::vector<const Table*> tables;
  std::vector<TableProbe> probes;
  std::vector<nb::object> owners;
  std::vector<Filter*> filters;
  std::vector<std::vector<uint64_t>> variants;
  mutable PageWatch pages;
  mutable std::atomic<uint64_t> fetches{0},
      blocks{0};  // requests for pages ahead, and blocks read, of all calls

  void add(nb::object table, unsigned prefix_bits, unsigned flips, Words masks, nb::object filter) {
    const Table* t = nb::cast<const Table*>(table);
    need(prefix_bits <= 64 && prefix_bits <= t->width, "prefix_bits is at most 64, and the width");
    for (size_t i = 0; i < masks.size(); ++i)
      need(!(masks.data()[i] & ~top_mask(prefix_bits)) &&
               (!i || masks.data()[i] > masks.data()[i - 1]),
           "variants ascend, and change only bits of the prefix");
    need(tables.empty() || t->width == width(), "tables of several widths");
    need(tables.empty() || t->view.codec == tables[0]->view.codec, "tables of several codecs");
    Filter* const f = filter.is_none() ? nullptr : nb::cast<Filter*>(filter);
    need(!f || f->header.prefix_bits <= prefix_bits, "a filter is of no more bits than the prefix");
    owners.push_back(table);
    tables.push_back(t);
    variants.emplace_back(masks.data(), masks.data() + masks.size());
    probes.push_back(TableProbe{&t->view, prefix_bits, flips, {}, nullptr, masks.size()});
    const Wide<kMaxWords> condition =
        apply(t->view.inverse, Wide<kMaxWords>{{top_mask(prefix_bits)}});
    std::copy_n(condition.word, kMaxWords, probes.back().condition);
    for (size_t i = 0; i < probes.size(); ++i) probes[i].variants = variants[i].data();
    if (!f) return;
    owners.push_back(filter);
    filters.push_back(f);
    probes.back().filter = &f->view;
    probes.back().passing = f->view.passing;
  }

  // Of no tables, any will do.
  unsigned width() const override { return tables.empty() ? 64 : tables[0]->width; }
  unsigned words() const { return words_of(width()); }
  bool finds_rows() const override { return false; }
  // Whether a look-up reads its whole table anyway.
  bool scans() const {
    return probes.size() == 1 && probes[0].prefix_bits == 0 && probes[0].variant_count == 1;
  }
  Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink,
                    ProbeCounters* counters, Fault* fault) const override {
    return search(queries, options, 1, sink, counters, fault);
  }
  const std::string& path_of(const Fault& fault) const override {
    return tables[fault.table]->path;
  }
  void tell_damage() const override {
    for (Filter* filter : filters) filter->tell_damage();
  }

  Status search(const Queries& queries, ProbeOptions options, unsigned threads, Sink* sink,
                ProbeCounters* counters, Fault* fault) const {
    if (queries.count <= kFewQueries) options.pages = &pages;
    const Status status =
        scans() && options.order == Order::best
            ? scan(queries, options, sink, counters, fault)
            : probe_on_threads(kernels(width()), words(),
                               {probes.data(), 0, static_cast<unsigned>(probes.size())}, queries,
                               options, threads, sink, counters, fault);
    blocks.fetch_add(counters->blocks, std::memory_order_relaxed);
    if (counters->fetches) fetches.fetch_add(counters->fetches, std::memory_order_relaxed);
    return status;
  }

  Status scan(const Queries& queries, const ProbeOptions& options, Sink* sink,
              ProbeCounters* counters, Fault* fault) const {
    const TableView& view = *probes[0].table;
    fault->table = 0;
    for (size_t q = 0; q < queries.count; q += kScanQueries) {
      const uint64_t first = sink->count;
      const Queries some{queries.words + q * words(), std::min(kScanQueries, queries.count - q)};
      FPSTORE_TRY(tables[0]->compare({0, view.block_count}, some, {options.radius, options.stop},
                                     sink, fault));
      shift_queries(sink, words(), first, static_cast<uint32_t>(q));
      counters->blocks += view.block_count;
      counters->candidates += view.fingerprint_count * some.count;
    }
    return Status::ok;
  }

  // (lims, fingerprints, distances, blocks read, candidates), or None when there are more than most
  // matches.
  nb::object probe(Rows queries, unsigned radius, std::optional<uint64_t> most,
                   const std::string& order, bool fetch, unsigned threads, const Stop* stop) const {
    const Queries asked = queries_of(queries, width());
    ProbeCounters counters;
    ProbeOptions options{radius};
    options.order = order_named(order);
    options.fetch = fetch;
    const auto path = [this](const Fault& fault) { return path_of(fault); };
    std::optional<OrderedMatches> found =
        matches_of(path, Part::block, width(), words(), asked.count, threads, most, stop,
                   [&](Sink* sink, Stopper* stopping, Fault* fault) {
                     options.stop = stopping;
                     return search(asked, options, threads, sink, &counters, fault);
                   });
    tell_damage();
    if (!found) return nb::none();
    const nb::tuple columns = found->columns();
    return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
  }
};

}  // namespace

void bind_probers(nb::module_& m) {
  using H = FilterHeader;
  nb::class_<Filter> filter(m, "Filter");
  filter.def(nb::init<Bytes, std::string>(), "data"_array, "path"_a)
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
      .def("add", &Prober::add, "table"_a, "prefix_bits"_a, "flips"_a, "variants"_array,
           "filter"_a = nb::none())
      .def("probe", &Prober::probe, "queries"_array, "radius"_a, "most"_a = nb::none(),
           "order"_a = "best", "fetch"_a = false, "threads"_a = 1, optional_stop())
      .def_prop_ro("fetches",
                   [](const Prober& p) { return p.fetches.load(std::memory_order_relaxed); })
      .def_prop_ro("blocks",
                   [](const Prober& p) { return p.blocks.load(std::memory_order_relaxed); });
}

}  // namespace fpstore
