// Filters, and the tables of a design with their look-ups.
#include "python/tables.hpp"
#include "search/on_threads.hpp"

namespace fpstore {
namespace {

constexpr size_t kFewQueries = 1 << 10;  // more of them keep a disk busy with what the system reads ahead
constexpr size_t kScanQueries = 1 << 8;  // are compared with a block at once: decoding takes longer than comparing

Order order_named(const std::string& name) {
  const std::pair<const char*, Order> orders[] = {{"best", Order::best}, {"asked", Order::asked}, {"near", Order::near}, {"sorted", Order::sorted}};
  for (const auto& [known, order] : orders)
    if (name == known) return order;
  throw nb::value_error("order is best, asked, near or sorted");
}

}  // namespace

Filter::Filter(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
  call(path, Part::block, [&](Fault* fault) { return parse_filter_header(data.data(), data.size(), &header, fault); });
  seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
  make_view(header, data.data(), seen.get(), &view);
}

void Filter::tell() {
  told = true;
  nb::module_::import_("fpstore.base.diagnostics").attr("tell_left_out")(path);
}

void Prober::add(nb::object table, unsigned prefix_bits, unsigned flips, Words masks, nb::object filter) {
  const Table* t = nb::cast<const Table*>(table);
  need(prefix_bits <= 64 && prefix_bits <= t->width, "prefix_bits is at most 64, and the width");
  for (size_t i = 0; i < masks.size(); ++i)
    need(!(masks.data()[i] & ~top_mask(prefix_bits)) && (!i || masks.data()[i] > masks.data()[i - 1]),
         "variants ascend, and change only bits of the prefix");
  need(tables.empty() || t->width == width(), "tables of several widths");
  need(tables.empty() || t->view.codec == tables[0]->view.codec, "tables of several codecs");
  Filter* const f = filter.is_none() ? nullptr : nb::cast<Filter*>(filter);
  need(!f || f->header.prefix_bits <= prefix_bits, "a filter is of no more bits than the prefix");
  owners_.push_back(table);
  if (f) owners_.push_back(filter);
  tables.push_back(t);
  variants_.emplace_back(masks.data(), masks.data() + masks.size());
  probes.push_back(TableProbe{&t->view, prefix_bits, flips, {}, nullptr, masks.size()});
  const Wide<kMaxWords> condition = apply(t->view.inverse, Wide<kMaxWords>{{top_mask(prefix_bits)}});
  std::copy_n(condition.word, kMaxWords, probes.back().condition);
  for (size_t i = 0; i < probes.size(); ++i) probes[i].variants = variants_[i].data();
  if (!f) return;
  filters_.push_back(f);
  probes.back().filter = &f->view;
  probes.back().passing = f->view.passing;
}

Status Prober::scan(const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters* counters, Fault* fault) const {
  const TableView& view = *probes[0].table;
  Status status = Status::ok;
  fault->table = 0;
  for (size_t q = 0; q < queries.count && status == Status::ok; q += kScanQueries) {
    const uint64_t first = sink->count;
    const Queries part{queries.words + q * words(), std::min(kScanQueries, queries.count - q)};
    status = tables[0]->kernels().scan(view, {0, view.block_count}, part, {options.radius, options.stop}, sink, fault);
    shift_queries(sink, words(), first, static_cast<uint32_t>(q));
    counters->blocks += view.block_count;
    counters->candidates += view.fingerprint_count * part.count;
  }
  return status;
}

Status Prober::search(const Queries& queries, ProbeOptions options, unsigned threads, Sink* sink, ProbeCounters* counters, Fault* fault) const {
  if (queries.count <= kFewQueries) options.pages = &pages_;
  const Status status =
      scans() && options.order == Order::best
          ? scan(queries, options, sink, counters, fault)
          : probe_on_threads(kernels(width()), words(), {probes.data(), 0, static_cast<unsigned>(probes.size())}, queries, options,
                             threads, sink, counters, fault);
  blocks.fetch_add(counters->blocks, std::memory_order_relaxed);
  if (counters->fetches) fetches.fetch_add(counters->fetches, std::memory_order_relaxed);
  return status;
}

bool Prober::is_brief() const {
  double blocks = 0;  // that are opened, about
  for (const TableProbe& probe : probes) blocks += static_cast<double>(probe.variant_count) * probe.passing;
  return !scans() && blocks <= kBriefBlocks;
}

nb::object Prober::probe(Rows queries, unsigned radius, std::optional<uint64_t> most, const std::string& order, bool fetch,
                         unsigned threads, const Stop* stop) const {
  need_words(queries, words());
  need(count_of(queries) <= UINT32_MAX, "at most 2^32 - 1 queries a call");
  SinkGuard guard;
  ProbeCounters counters;
  ProbeOptions options{radius};
  options.order = order_named(order);
  options.fetch = fetch;
  Stopper stopping = stopper(stop);
  options.stop = &stopping;
  if (most) guard.sink.limit = *most;
  const size_t n = count_of(queries);
  Fault fault;
  const Status status = without_gil([&] { return search({queries.data(), n}, options, threads, &guard.sink, &counters, &fault); });
  tell_damage();
  if (status == Status::out_of_memory && guard.sink.count >= guard.sink.limit) return nb::none();
  if (status != Status::ok) raise_fault(fault, path_of(fault));
  OrderedMatches found = without_gil([&] { return OrderedMatches(guard.sink, width(), words(), n, threads, &stopping); });
  const nb::tuple columns = found.columns();
  return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
}

void bind_probers(nb::module_& m) {
  using H = FilterHeader;
  nb::class_<Filter> filter(m, "Filter");
  filter.def(nb::init<Bytes, std::string>(), "data"_array, "path"_a)
      .def_prop_ro("shape",
                   [](const Filter& f) {
                     return nb::make_tuple(f.header.prefix_bits, f.header.bucket_bits, f.header.bits_per_prefix);
                   })
      .def_prop_ro("passing", [](const Filter& f) { return f.view.passing; })
      .def_prop_ro("damaged", [](const Filter& f) { return is_damaged(f.view); });
  bind_header<H>(filter);
  bind_fields(filter, "fingerprint_count", &H::fingerprint_count, "word_count", &H::word_count, "starts_offset", &H::starts_offset,
              "checksums_offset", &H::checksums_offset);
  nb::class_<AnyProber>(m, "AnyProber");
  nb::class_<Prober, AnyProber>(m, "Prober")
      .def(nb::init<>())
      .def("add", &Prober::add, "table"_a, "prefix_bits"_a, "flips"_a, "variants"_array, "filter"_a = nb::none())
      .def("probe", &Prober::probe, "queries"_array, "radius"_a, "most"_a = nb::none(), "order"_a = "best", "fetch"_a = false,
           "threads"_a = 1, optional_stop())
      .def_prop_ro("fetches", [](const Prober& p) { return p.fetches.load(std::memory_order_relaxed); })
      .def_prop_ro("blocks", [](const Prober& p) { return p.blocks.load(std::memory_order_relaxed); });
}

}  // namespace fpstore
