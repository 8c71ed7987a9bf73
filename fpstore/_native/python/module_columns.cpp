// Column tables and row files: mapped, read in parts, and probing those of a design.
#include "python/tables.hpp"

namespace fpstore {
namespace {

// Blocks of entries whose ids are stored together.
uint64_t id_blocks(const ColumnHeader& h) { return (h.count + kRowsInBlock - 1) / kRowsInBlock; }

// A table of copies or of references, or a row file. Its ids are stored for blocks of entries,
// which are its blocks as a table.
class ColumnTable : public AnyTable {
 public:
  ColumnHeader header;
  std::unique_ptr<uint64_t[]> seen;
  ColumnView view;

  ColumnTable(Bytes data, std::string name) : AnyTable(data, std::move(name), Part::column) {
    call(path, Part::column, [&](Fault* fault) {
      return parse_column_header(data.data(), data.size(), &header, fault);
    });
    width = header.width;
    block_count = id_blocks(header);
    set_digest = header.set_digest;
    seen.reset(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
    make_view(header, data.data(), seen.get(), &view);
  }

  nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const override {
    check_range(first, end);
    end = std::min(end, first + std::max<uint64_t>(room / kRowsInBlock, 1));
    const Entries entries = entries_of({first, end});
    const unsigned each = view.rows ? words() : 1;
    Buffer<uint64_t> out((entries.end - entries.first) * each);
    Buffer<uint32_t> counts(end - first);
    for (uint64_t b = first; b < end; ++b)
      counts.get()[b - first] =
          static_cast<uint32_t>(std::min<uint64_t>(header.count - b * kRowsInBlock, kRowsInBlock));
    call(path, Part::column,
         [&](Fault* fault) { return read_entries(view, entries, out.get(), fault); });
    return nb::make_tuple(out.array(entries.end - entries.first, each), counts.array(end - first),
                          end);
  }

  // The rows at places.
  nb::object rows_at(const uint64_t* places, size_t n) const {
    Buffer<uint64_t> out(n * words());
    call(path, Part::column, [&](Fault* fault) {
      for (size_t i = 0; i < n; ++i)
        FPSTORE_TRY(read_entries(view, {places[i], places[i] + 1}, out.get() + words() * i, fault));
      return Status::ok;
    });
    return out.array(n, words());
  }

  Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
              Fault* fault) const override {
    check_searched();
    for (size_t i = 0; i < n; ++i) {
      const uint64_t block = blocks[i], place = block * kRowsInBlock + ranks[i];
      if (block >= block_count)
        return (*fault = Fault{Status::bad_place, block, block_count, block}).status;
      if (ranks[i] >= kRowsInBlock || place >= header.count)
        return (*fault = Fault{Status::bad_place, block, kRowsInBlock, ranks[i]}).status;
      FPSTORE_TRY(read_entries(view, {place, place + 1}, out + words() * i, fault));
    }
    return Status::ok;
  }

  Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
              Fault* fault) const override {
    check_searched();
    FPSTORE_TRY(locate_entries(view, fingerprints, blocks, stop, fault));
    for (size_t i = 0; i < fingerprints.count; ++i) {
      const uint64_t place = blocks[i];
      ranks[i] = place == UINT64_MAX ? 0 : static_cast<uint32_t>(place % kRowsInBlock);
      if (place != UINT64_MAX) blocks[i] = place / kRowsInBlock;
    }
    return Status::ok;
  }

  Status read_key(uint64_t block, uint64_t* out, Fault* fault) const override {
    check_searched();
    const uint64_t end = entries_of({block, block + 1}).end;
    return read_entries(view, {end - 1, end}, out, fault);
  }
  Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options,
                 Sink* sink, Fault* fault) const override {
    check_searched();
    return scan_entries(view, entries_of(range), queries, options, sink, fault);
  }

 private:
  void check_searched() const {
    if (header.kind == ColumnKind::references)
      throw nb::type_error("references are searched with their rows, by a ColumnProber");
  }
  Entries entries_of(const BlockRange& range) const {
    return {std::min(range.begin * kRowsInBlock, header.count),
            std::min(range.end * kRowsInBlock, header.count)};
  }
};

// A column table or row file of which only the header is known, for the keys of entries that were
// read elsewhere.
struct ColumnParts {
  std::string path;
  ColumnHeader header;
  ColumnView view;

  ColumnParts(Bytes start, uint64_t file_bytes, std::string name) : path(std::move(name)) {
    const uint64_t known = start.size() < kHeaderBytes ? start.size() : file_bytes;
    call(path, Part::column,
         [&](Fault* fault) { return parse_column_header(start.data(), known, &header, fault); });
    make_view(header, start.data(), nullptr, &view);
  }

  // The keys of the entries from number first on, from their tags and rests. The directory is that
  // of the buckets from number bucket on, and has a number more than buckets. Nothing is compared
  // with checksums here.
  nb::object decode(uint64_t first, Bytes tags, Bytes rests, uint64_t bucket,
                    Counts directory) const {
    if (view.rows) throw nb::type_error("a row file holds rows");
    const uint64_t n = tags.size() / 2, buckets = directory.size() ? directory.size() - 1 : 0;
    if (first > header.count || n > header.count - first || rests.size() != n * view.rest_bytes ||
        bucket > bucket_count(view) || buckets > bucket_count(view) - bucket)
      throw nb::index_error("entries or buckets outside the table");
    Buffer<uint64_t> out(n);
    call(path, Part::column, [&](Fault* fault) {
      uint64_t i = 0;
      for (uint64_t b = 0; b < buckets && directory.data()[b] <= first + i; ++b)
        for (const uint64_t end = directory.data()[b + 1]; i < n && first + i < end; ++i)
          out.get()[i] = key(bucket + b, tags.data(), rests.data(), i);
      if (i < n) *fault = Fault{Status::bad_directory, UINT64_MAX, header.count, first + i};
      return fault->status;
    });
    return out.array(n);
  }

  uint64_t key(uint64_t bucket, const uint8_t* tags, const uint8_t* rests, uint64_t i) const {
    uint64_t rest = 0;
    for (unsigned b = 0; b < view.rest_bytes; ++b)
      rest |= uint64_t{rests[view.rest_bytes * i + b]} << 8 * b;
    return head_of(view, bucket, load16(tags + 2 * i)) | (rest & view.rest_mask) << view.rest_shift;
  }
};

// The tables of a design in the order of their ring, with a threshold for each; without, those that
// suit each query.
struct ColumnProber : AnyProber {
  std::vector<nb::object> owners;
  std::vector<const ColumnTable*> tables;
  std::vector<RingTable> ring;
  const ColumnTable* rows = nullptr;
  std::optional<std::vector<int16_t>> thresholds;
  uint64_t reach = UINT64_MAX;  // the first radius that the thresholds are too small for

  ColumnProber(nb::list given, nb::object row_file, const std::optional<std::vector<int>>& wanted) {
    need(nb::len(given) >= 1 && nb::len(given) <= kMostRing, "a ring has 1 to 64 tables");
    for (nb::handle table : given) add(nb::borrow(table));
    const ColumnHeader& h = tables[0]->header;
    if (!row_file.is_none()) {
      rows = &nb::cast<const ColumnTable&>(row_file);
      owners.push_back(row_file);
    }
    need((h.kind == ColumnKind::references) == (rows != nullptr) &&
             (!rows || rows->header.kind == ColumnKind::rows),
         "tables of references need a row file, and only they");
    need(!rows || of_one_set(rows->header, h), "the row file is of another set");
    // What a probe's exactness rests on; see Ring.
    uint64_t taken[kMaxWords] = {};
    for (size_t i = 0; i < ring.size(); ++i)
      for (unsigned w = 0; w < kMaxWords; ++w) {
        const uint64_t block = ring[(i + 1) % ring.size()].bucket_mask[w] | ring[i].tag_mask[w];
        need(!(taken[w] & block), "the blocks of the ring share a bit");
        taken[w] |= block;
      }
    if (!wanted) return;
    need(wanted->size() == ring.size(), "a threshold for each table");
    thresholds.emplace();
    reach = 0;
    for (const int t : *wanted) {
      need(t >= -1 && t <= static_cast<int>(kMaxWidth), "a threshold is -1 to 256");
      thresholds->push_back(static_cast<int16_t>(t));
      reach += static_cast<unsigned>(t + 1);
    }
  }

  static bool of_one_set(const ColumnHeader& a, const ColumnHeader& b) {
    return a.width == b.width && a.count == b.count && a.set_digest == b.set_digest;
  }

  void add(nb::object object) {
    const ColumnTable* t = &nb::cast<const ColumnTable&>(object);
    const ColumnHeader& h = t->header;
    need(h.kind != ColumnKind::rows, "a row file is not a table");
    owners.push_back(object);
    tables.push_back(t);
    const ColumnHeader& first = tables[0]->header;
    need(h.kind == first.kind && of_one_set(h, first), "the tables are of different sets");
    RingTable r{&t->view, {}, {}};
    for (unsigned i = 0; i < h.bucket_bits + h.tag_bits; ++i) {
      const unsigned source = h.permutation[i];
      uint64_t* const mask = i < h.bucket_bits ? r.bucket_mask : r.tag_mask;
      mask[source / 64] |= uint64_t{1} << (63 - source % 64);
    }
    ring.push_back(r);
  }

  unsigned width() const override { return tables[0]->header.width; }
  bool finds_rows() const override { return rows != nullptr; }
  const std::string& path_of(const Fault& fault) const override {
    return fault.table < tables.size() ? tables[fault.table]->path : rows->path;
  }

  Status search(const Queries& asked, unsigned radius, Stopper* stop, Sink* sink,
                ColumnCounters* counters, Fault* fault) const {
    std::vector<int16_t> room;  // for the thresholds of a query
    if (!thresholds) room.resize(ring.size());
    return column_kernels().probe[words_of(width()) / 2](
        {ring.data(), static_cast<unsigned>(ring.size()), rows ? &rows->view : nullptr}, asked,
        {radius, thresholds ? thresholds->data() : room.data(), !thresholds, stop}, sink, counters,
        fault);
  }
  Status search_few(const Queries& queries, const ProbeOptions& options, Sink* sink, ProbeCounters*,
                    Fault* fault) const override {
    ColumnCounters counters;
    return search(queries, checked(options.radius), options.stop, sink, &counters, fault);
  }
  unsigned checked(unsigned radius) const {
    radius = std::min(radius, width());
    need(radius < reach, "the thresholds, one added to each, must add up to more than the radius");
    return radius;
  }

  // (lims, fingerprints, distances, (look-ups, candidates, survivors)), or None when there are more
  // than most matches.
  nb::object probe(Rows queries, unsigned radius, std::optional<uint64_t> most,
                   const Stop* stop) const {
    radius = checked(radius);
    const Queries asked = queries_of(queries, width());
    ColumnCounters counters;
    const auto path = [this](const Fault& fault) { return path_of(fault); };
    std::optional<OrderedMatches> found =
        matches_of(path, Part::column, width(), 1, asked.count, 1, most, stop,
                   [&](Sink* sink, Stopper* stopping, Fault* fault) {
                     return search(asked, radius, stopping, sink, &counters, fault);
                   });
    if (!found) return nb::none();
    const nb::object of_rows =
        rows ? rows->rows_at(found->fingerprints.get(), found->count) : nb::none();
    const nb::tuple columns = found->columns();
    return nb::make_tuple(
        columns[0], rows ? of_rows : nb::object(columns[1]), columns[2],
        nb::make_tuple(counters.lookups, counters.candidates, counters.survivors));
  }
};

template <class Bound>
void bind_column_header(Bound& bound) {
  using T = typename Bound::Type;
  using H = ColumnHeader;
  bind_header<H>(bound);
  bind_fields(bound, "bucket_bits", &H::bucket_bits, "tag_bits", &H::tag_bits, "rest_bits",
              &H::rest_bits, "count", &H::count, "fingerprint_count", &H::count, "directory_offset",
              &H::directory_offset, "tags_offset", &H::tags_offset, "rest_offset", &H::rest_offset,
              "checksums_offset", &H::checksums_offset, "seed", &H::checksum);
  bound.def_prop_ro("kind", [](const T& t) { return static_cast<unsigned>(t.header.kind); })
      .def_prop_ro("threshold", [](const T& t) { return t.header.allowance - 1; })
      .def_prop_ro("block_count", [](const T& t) { return id_blocks(t.header); });
}

}  // namespace

void bind_columns(nb::module_& m) {
  nb::class_<ColumnTable, AnyTable> table(m, "ColumnTable");
  table.def(nb::init<Bytes, std::string>(), "data"_array, "path"_a);
  bind_column_header(table);
  nb::class_<ColumnParts> parts(m, "ColumnParts");
  parts.def(nb::init<Bytes, uint64_t, std::string>(), "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &ColumnParts::decode, "first"_a, "tags"_a, "rests"_a, "bucket"_a,
           "directory"_a);
  bind_column_header(parts);
  nb::class_<ColumnProber, AnyProber>(m, "ColumnProber")
      .def(nb::init<nb::list, nb::object, std::optional<std::vector<int>>>(), "tables"_a,
           "rows"_a = nb::none(), "thresholds"_a = nb::none())
      .def("probe", &ColumnProber::probe, "queries"_array, "radius"_a, "most"_a = nb::none(),
           optional_stop());
}

}  // namespace fpstore
