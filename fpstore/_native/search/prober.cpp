#include "search/prober.hpp"

#include <algorithm>

#include "search/on_threads.hpp"
#include "search/results.hpp"

namespace fpstore {
namespace {

constexpr size_t kFewQueries =
    1 << 10;  // more of them keep a disk busy with what the system reads ahead
constexpr size_t kScanQueries =
    1 << 8;  // are compared with a block at once: decoding takes longer than comparing

}  // namespace

Filter::Filter(Span<const uint8_t> data, std::string path) : file{std::move(path)} {
  Fault fault;
  check(parse_filter_header(data.data, data.size, &header, &fault), fault, file);
  seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
  make_view(header, data.data, seen.get(), &view);
}

void Prober::add(const Table* table, unsigned prefix_bits, unsigned flips,
                 Span<const uint64_t> masks, Filter* filter) {
  need(prefix_bits <= 64 && prefix_bits <= table->width,
       "prefix_bits is at most 64, and the width");
  for (size_t i = 0; i < masks.size; ++i)
    need(!(masks[i] & ~top_mask(prefix_bits)) && (!i || masks[i] > masks[i - 1]),
         "variants ascend, and change only bits of the prefix");
  need(tables_.empty() || table->width == width(), "tables of several widths");
  need(tables_.empty() || table->view.codec == tables_[0]->view.codec, "tables of several codecs");
  need(!filter || filter->header.prefix_bits <= prefix_bits,
       "a filter is of no more bits than the prefix");
  tables_.push_back(table);
  variants_.emplace_back(masks.begin(), masks.end());
  probes_.push_back(TableProbe{&table->view, prefix_bits, flips, {}, nullptr, masks.size});
  const Wide<kMaxWords> condition =
      apply(table->view.inverse, Wide<kMaxWords>{{top_mask(prefix_bits)}});
  std::copy_n(condition.word, kMaxWords, probes_.back().condition);
  for (size_t i = 0; i < probes_.size(); ++i) probes_[i].variants = variants_[i].data();
  if (!filter) return;
  filters_.push_back(filter);
  probes_.back().filter = &filter->view;
  probes_.back().passing = filter->view.passing;
}

const Filter* Prober::next_damaged_filter() const {
  for (Filter* filter : filters_)
    if (is_damaged(filter->view) && !filter->reported.exchange(true)) return filter;
  return nullptr;
}

// Whether a look-up reads its whole table anyway.
bool Prober::scans() const {
  return probes_.size() == 1 && probes_[0].prefix_bits == 0 && probes_[0].variant_count == 1;
}

Status Prober::search(const Queries& queries, ProbeOptions options, unsigned threads, Sink* sink,
                      ProbeCounters* counters, Fault* fault) const {
  if (queries.count <= kFewQueries) options.pages = &pages_;
  const Status status =
      scans() && options.order == Order::best
          ? scan(queries, options, sink, counters, fault)
          : probe_on_threads(kernels(width()), words(),
                             {probes_.data(), 0, static_cast<unsigned>(probes_.size())}, queries,
                             options, threads, sink, counters, fault);
  blocks.fetch_add(counters->blocks, std::memory_order_relaxed);
  if (counters->fetches) fetches.fetch_add(counters->fetches, std::memory_order_relaxed);
  return status;
}

Status Prober::scan(const Queries& queries, const ProbeOptions& options, Sink* sink,
                    ProbeCounters* counters, Fault* fault) const {
  const TableView& view = *probes_[0].table;
  fault->table = 0;
  for (size_t q = 0; q < queries.count; q += kScanQueries) {
    const uint64_t first = sink->count;
    const Queries batch{queries.words + q * words(), std::min(kScanQueries, queries.count - q)};
    FPSTORE_TRY(tables_[0]->compare({0, view.block_count}, batch, {options.radius, options.stop},
                                    sink, fault));
    shift_queries(sink, words(), first, static_cast<uint32_t>(q));
    counters->blocks += view.block_count;
    counters->candidates += view.fingerprint_count * batch.count;
  }
  return Status::ok;
}

}  // namespace fpstore
