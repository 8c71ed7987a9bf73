// Column tables and row files: reading one, and probing those of a design.
#include <algorithm>

#include "columns/kernels.hpp"
#include "columns/read.hpp"
#include "python/columns.hpp"

namespace fpstore {
namespace {

struct ColumnTable {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  ColumnHeader header;
  std::unique_ptr<uint64_t[]> seen;
  ColumnView view;
  const uint8_t* data;

  ColumnTable(Bytes bytes, std::string name) : owner(nb::cast(bytes)), path(std::move(name)), data(bytes.data()) {
    Fault fault;
    check_column(parse_column_header(data, bytes.size(), &header, &fault), fault, path);
    seen = fresh();
    make_view(header, data, seen.get(), &view);
  }

  std::unique_ptr<uint64_t[]> fresh() const {
    return std::unique_ptr<uint64_t[]>(new uint64_t[seen_words(kHeaderBytes, header.checksums_offset)]());
  }
  uint64_t block_count() const { return id_blocks(header); }
  unsigned each() const { return view.rows ? view.words : 1; }
  void check_searched() const {
    if (header.kind == ColumnKind::references) throw nb::type_error("references are searched with their rows, by a ColumnProber");
  }
  void check_range(uint64_t first, uint64_t end) const {
    if (first > end || end > header.count) throw nb::index_error("entries outside the table");
  }

  nb::object decode(uint64_t first, uint64_t end) const {
    check_range(first, end);
    Buffer<uint64_t> out((end - first) * each());
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = read_entries(view, {first, end}, out.get(), &fault);
    }
    check_column(status, fault, path);
    return row_array(&out, end - first, each());
  }

  // Entries at places; a place that the table does not have is the fault of the file `source`, which named it.
  nb::object entries_at(Words places, const std::string& source) const {
    Buffer<uint64_t> out(places.size() * each());
    Fault fault;
    Status status = Status::ok;
    {
      ReleasedGil released;
      for (size_t i = 0; i < places.size() && status == Status::ok; ++i) {
        const uint64_t place = places.data()[i];
        if (place >= header.count) status = (fault = Fault{Status::bad_place, UINT64_MAX, header.count, place}).status;
        else status = read_entries(view, {place, place + 1}, out.get() + each() * i, &fault);
      }
    }
    check_column(status, fault, status == Status::bad_place ? source : path);
    return row_array(&out, places.size(), each());
  }

  // The keys of blocks of 128 entries: their last ones.
  nb::object keys_of(Words blocks) const {
    Buffer<uint64_t> places(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks.data()[i] >= block_count()) throw nb::index_error("no such block");
      places.get()[i] = std::min(header.count, (blocks.data()[i] + 1) * kRowsInBlock) - 1;
    }
    return entries_at(nb::cast<Words>(places.array(blocks.size())), path);
  }

  nb::object locate(AnyWords fingerprints) const {
    check_searched();
    const ColumnQueries sought = fingerprints_of(fingerprints, header);
    Buffer<uint64_t> places(sought.count);
    Fault fault;
    Status status;
    Stopper stopping = stopper(nullptr);
    {
      ReleasedGil released;
      status = locate_entries(view, sought, places.get(), &stopping, &fault);
    }
    check_column(status, fault, path);
    return places.array(sought.count);
  }

  // (lims, fingerprints or rows, distances)
  nb::object scan(AnyWords queries, unsigned radius, uint64_t first, uint64_t end, const Stop* stop) const {
    return scan_at_most(queries, radius, first, end, std::nullopt, stop);
  }

  // (lims, fingerprints or rows, distances), or None when there are more than most matches.
  nb::object scan_at_most(AnyWords queries, unsigned radius, uint64_t first, uint64_t end, std::optional<uint64_t> most, const Stop* stop) const {
    check_searched();
    check_range(first, end);
    const ColumnQueries asked = fingerprints_of(queries, header);
    SinkGuard guard;
    if (most) guard.sink.limit = *most;
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = scan_entries(view, {first, end}, asked, radius, &stopping, {&guard.sink, nullptr}, &fault);
    }
    if (status == Status::out_of_memory && guard.sink.count >= guard.sink.limit) return nb::none();
    check_column(status, fault, path);
    return finish(guard.sink, header.width, asked.count, &stopping);
  }

  // Of fingerprints, or of rows.
  static nb::tuple finish(const Sink& sink, unsigned width, size_t query_count, Stopper* stop) {
    std::optional<OrderedMatches> ordered;
    {
      ReleasedGil released;
      ordered.emplace(sink, width, 1, query_count, 1, stop);
    }
    check_column(ordered->status, Fault{ordered->status}, "");
    return ordered->columns();
  }
};

// A table of copies in the order of the fingerprints, or a row file, as the identity table of a store: entries are found by the
// number of their block and their rank in it, like those of a Table.
struct ColumnIdentity {
  nb::object owner;
  const ColumnTable* table;

  explicit ColumnIdentity(nb::object given) : owner(given), table(nb::cast<const ColumnTable*>(given)) {}
  unsigned width() const { return table->header.width; }
  unsigned words() const { return words_of(width()); }

  uint64_t place_of(uint64_t block, uint32_t rank, const std::string& source) const {
    if (block >= table->block_count()) raise_fault(Fault{Status::bad_place, block, table->block_count(), block}, source);
    const uint64_t place = block * kRowsInBlock + rank;
    if (rank >= kRowsInBlock || place >= table->header.count) raise_fault(Fault{Status::bad_place, block, kRowsInBlock, rank}, source);
    return place;
  }
  void read(uint64_t place, uint64_t* out) const {
    Fault fault;
    check_column(read_entries(table->view, {place, place + 1}, out, &fault), fault, table->path);
  }

  // (entries, entry counts, next block): blocks from first on while they fit into room entries, one at least.
  nb::tuple decode(uint64_t first, uint64_t end, uint64_t room) const {
    if (first > end || end > table->block_count()) throw nb::index_error("block range outside the table");
    end = std::min(end, first + std::max<uint64_t>(room / kRowsInBlock, 1));
    const uint64_t from = std::min(first * kRowsInBlock, table->header.count), to = std::min(end * kRowsInBlock, table->header.count);
    Buffer<uint32_t> counts(end - first);
    for (uint64_t b = first; b < end; ++b)
      counts.get()[b - first] = static_cast<uint32_t>(std::min<uint64_t>(table->header.count - b * kRowsInBlock, kRowsInBlock));
    return nb::make_tuple(table->decode(from, to), counts.array(end - first), end);
  }

  nb::tuple locate(Rows fingerprints) const {
    table->check_searched();
    need_words(fingerprints, words());
    const ColumnQueries sought{fingerprints.data(), count_of(fingerprints)};
    Fault fault;
    const auto find = [&](uint64_t* blocks, uint32_t* ranks, Stopper* stop) {
      const Status status = locate_entries(table->view, sought, blocks, stop, &fault);
      for (size_t i = 0; i < sought.count && status == Status::ok; ++i) {
        const uint64_t place = blocks[i];
        ranks[i] = place == UINT64_MAX ? 0 : static_cast<uint32_t>(place % kRowsInBlock);
        if (place != UINT64_MAX) blocks[i] = place / kRowsInBlock;
      }
      return status;
    };
    return located(sought.count, find, [&](Status status) { check_column(status, fault, table->path); });
  }

  nb::object locate_one(nb::handle fingerprint) const {
    table->check_searched();
    const OneRow row(fingerprint, words());
    uint64_t place;
    Fault fault;
    check_column(locate_entries(table->view, {row.words, 1}, &place, nullptr, &fault), fault, table->path);
    if (place == UINT64_MAX) return nb::none();
    return nb::make_tuple(place / kRowsInBlock, place % kRowsInBlock);
  }

  nb::object entry_at(uint64_t block, uint32_t rank, const std::string& source) const {
    uint64_t row[kMaxWords];
    read(place_of(block, rank, source), row);
    return number_of(row, words());
  }

  nb::object entries_at(Words blocks, Counts ranks, const std::string& source) const {
    if (ranks.size() != blocks.size()) throw nb::value_error("columns of different lengths");
    Buffer<uint64_t> places(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) places.get()[i] = place_of(blocks.data()[i], ranks.data()[i], source);
    return table->entries_at(nb::cast<Words>(places.array(blocks.size())), source);
  }

  nb::object key_of(uint64_t block) const {
    if (block >= table->block_count()) throw nb::index_error("no such block");
    uint64_t row[kMaxWords];
    read(std::min(table->header.count, (block + 1) * kRowsInBlock) - 1, row);
    return number_of(row, words());
  }

  nb::object keys_of(Words blocks) const { return table->keys_of(blocks); }

  void check_blocks(uint64_t first, uint64_t end) const {
    if (first > end || end > table->block_count()) throw nb::index_error("block range outside the table");
  }
  Entries entries_of(uint64_t first, uint64_t end) const {
    return {std::min(first * kRowsInBlock, table->header.count), std::min(end * kRowsInBlock, table->header.count)};
  }

  // (lims, fingerprints, distances), or None when there are more than most matches.
  nb::object scan_range(Rows queries, unsigned radius, const Entries& entries, std::optional<uint64_t> most, const Stop* stop) const {
    nb::object columns = table->scan_at_most(queries, radius, entries.first, entries.end, most, stop);
    if (!table->view.rows || columns.is_none()) return columns;
    return nb::make_tuple(columns[0], table->entries_at(nb::cast<Words>(columns[1]), table->path), columns[2]);
  }

  nb::object scan(Rows queries, unsigned radius, uint64_t first, uint64_t end, const Stop* stop) const {
    check_blocks(first, end);
    return scan_range(queries, radius, entries_of(first, end), std::nullopt, stop);
  }

  // As Prober.probe, of all entries.
  nb::object probe(Rows queries, unsigned radius, std::optional<uint64_t> most, const Stop* stop) const {
    return scan_range(queries, radius, {0, table->header.count}, most, stop);
  }

  // (lims, fingerprints, distances, more): as Table.nearest.
  nb::tuple nearest(Rows queries, unsigned radius, uint64_t limit, uint64_t first, uint64_t end, Rows absent, const Stop* stop) const {
    table->check_searched();
    check_blocks(first, end);
    need_words(absent, words());
    if (!limit) throw nb::value_error("limit is at least 1");
    const ColumnQueries asked = fingerprints_of(queries, table->header);
    SinkGuard guard;
    NearestGuard kept;
    kept.nearest.absent = absent.data();
    kept.nearest.absent_count = count_of(absent);
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status = Status::out_of_memory;
    if (start_nearest(&kept.nearest, words(), asked.count, limit, radius)) {
      ReleasedGil released;
      status = scan_entries(table->view, entries_of(first, end), asked, radius, &stopping, {nullptr, &kept.nearest}, &fault);
      if (status == Status::ok && !hand_over(&kept.nearest, &guard.sink)) status = Status::out_of_memory;
    }
    if (status == Status::out_of_memory) fault = Fault{status};
    check_column(status, fault, table->path);
    std::optional<OrderedMatches> ordered;
    {
      ReleasedGil released;
      ordered.emplace(guard.sink, width(), words(), asked.count, 1, &stopping);
    }
    check_column(ordered->status, Fault{ordered->status}, "");
    nb::tuple columns = ordered->columns();
    return nb::make_tuple(columns[0], columns[1], columns[2], more_of(kept.nearest));
  }
};

// The tables of a design in the order of their ring.
struct ColumnProber {
  std::vector<nb::object> owners;
  std::vector<const ColumnTable*> tables;
  std::vector<RingTable> ring;
  const ColumnTable* rows = nullptr;

  ColumnProber(nb::list given, nb::object row_file) {
    if (nb::len(given) < 1 || nb::len(given) > kMostRing) throw nb::value_error("a ring has 1 to 64 tables");
    for (nb::handle table : given) add(nb::borrow(table));
    if (!row_file.is_none()) {
      rows = nb::cast<const ColumnTable*>(row_file);
      owners.push_back(row_file);
    }
    const ColumnHeader& h = tables[0]->header;
    const bool references = h.kind == ColumnKind::references;
    if (references != (rows != nullptr) || (rows && rows->header.kind != ColumnKind::rows))
      throw nb::value_error("tables of references need a row file, and only they");
    if (rows && (rows->header.width != h.width || rows->header.count != h.count || rows->header.set_digest != h.set_digest))
      throw nb::value_error("the row file is of another set");
    check_ring();
  }

  void add(nb::object object) {
    const ColumnTable* t = nb::cast<const ColumnTable*>(object);
    const ColumnHeader& h = t->header;
    if (h.kind == ColumnKind::rows) throw nb::value_error("a row file is not a table");
    owners.push_back(object);
    tables.push_back(t);
    const ColumnHeader& first = tables[0]->header;
    if (h.kind != first.kind || h.width != first.width || h.count != first.count || h.set_digest != first.set_digest)
      throw nb::value_error("the tables are of different sets");
    RingTable r{&t->view, {}, {}};
    for (unsigned i = 0; i < h.bucket_bits + h.tag_bits; ++i) {
      const unsigned source = h.permutation[i];
      uint64_t* const mask = i < h.bucket_bits ? r.bucket_mask : r.tag_mask;
      mask[source / 64] |= uint64_t{1} << (63 - source % 64);
    }
    ring.push_back(r);
  }

  // What a probe's exactness rests on; see Ring.
  void check_ring() const {
    uint64_t taken[kMaxWords] = {};
    for (size_t i = 0; i < ring.size(); ++i)
      for (unsigned w = 0; w < kMaxWords; ++w) {
        const uint64_t block = ring[(i + 1) % ring.size()].bucket_mask[w] | ring[i].tag_mask[w];
        if (taken[w] & block) throw nb::value_error("the blocks of the ring share a bit");
        taken[w] |= block;
      }
  }

  using Thresholds = std::optional<std::vector<int>>;  // of each table; none: those that suit each query

  std::vector<int16_t> thresholds_for(const Thresholds& given, unsigned radius) const {
    if (!given) return std::vector<int16_t>(ring.size());
    if (given->size() != ring.size()) throw nb::value_error("a threshold for each table");
    std::vector<int16_t> out;
    uint64_t sum = 0;
    for (const int t : *given) {
      if (t < -1 || t > static_cast<int>(kMaxWidth)) throw nb::value_error("a threshold is -1 to 256");
      out.push_back(static_cast<int16_t>(t));
      sum += static_cast<unsigned>(t + 1);
    }
    if (sum <= radius) throw nb::value_error("the thresholds, one added to each, must add up to more than the radius");
    return out;
  }

  // Asks the tables; false when the sink is full.
  bool run(const ColumnQueries& asked, unsigned radius, const Thresholds& given, Sink* sink, ColumnCounters* counters,
           Stopper* stopping) const {
    const std::vector<int16_t> thresholds = thresholds_for(given, radius);
    const unsigned words = words_of(tables[0]->header.width);
    const ColumnKernels& k = column_kernels();
    const ColumnProbe probing = words == 1 ? k.probe_copies : words == 2 ? k.probe_pairs : k.probe_fours;
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = probing({ring.data(), static_cast<unsigned>(ring.size()), rows ? &rows->view : nullptr}, asked,
                       {radius, thresholds.data(), !given, stopping}, sink, counters, &fault);
    }
    if (status == Status::out_of_memory && sink->count >= sink->limit) return false;
    if (status != Status::ok) raise_column(fault, fault.table < tables.size() ? tables[fault.table]->path : rows->path);
    return true;
  }

  // (lims, fingerprints, distances, (look-ups, candidates, survivors)), or None when there are more than most matches.
  nb::object probe(AnyWords queries, unsigned radius, const Thresholds& thresholds, std::optional<uint64_t> most,
                   const Stop* stop) const {
    const ColumnHeader& h = tables[0]->header;
    radius = std::min<unsigned>(radius, h.width);
    const ColumnQueries asked = fingerprints_of(queries, h);
    SinkGuard guard;
    if (most) guard.sink.limit = *most;
    ColumnCounters counters;
    Stopper stopping = stopper(stop);
    if (!run(asked, radius, thresholds, &guard.sink, &counters, &stopping)) return nb::none();
    nb::tuple columns = ColumnTable::finish(guard.sink, h.width, asked.count, &stopping);
    nb::tuple counts = nb::make_tuple(counters.lookups, counters.candidates, counters.survivors);
    nb::object found = rows ? rows->entries_at(nb::cast<Words>(columns[1]), rows->path) : columns[1];
    return nb::make_tuple(columns[0], found, columns[2], counts);
  }

  // [(fingerprint, distance, block, rank), ...] by distance, fingerprint; block and rank are places in the identity table.
  nb::list probe_one(nb::handle number, unsigned radius, const Thresholds& thresholds, const ColumnIdentity& identity) const {
    const ColumnHeader& h = tables[0]->header;
    const unsigned words = words_of(h.width);
    const OneRow query(number, words);
    SinkGuard guard;
    ColumnCounters counters;
    Stopper stopping = stopper(nullptr);
    run({query.words, 1}, radius, thresholds, &guard.sink, &counters, &stopping);
    OrderedMatches found(guard.sink, h.width, 1, 1, 1, &stopping);
    check_column(found.status, Fault{found.status}, "");
    uint64_t* const values = found.fingerprints.get();
    std::vector<uint64_t> places(values, values + found.count);
    Fault fault;
    if (!rows) check_column(locate_entries(identity.table->view, {values, found.count}, places.data(), &stopping, &fault), fault,
                            identity.table->path);
    nb::list out;
    for (size_t i = 0; i < found.count; ++i) {
      if (should_stop(&stopping, kBlockWork)) throw Interrupted();
      if (places[i] == UINT64_MAX) raise_fault(Fault{Status::bad_digest, UINT64_MAX, values[i], 0}, identity.table->path);
      uint64_t row[kMaxWords] = {values[i]};
      if (rows) identity.read(places[i], row);
      out.append(nb::make_tuple(number_of(row, words), found.distance(i), places[i] / kRowsInBlock, places[i] % kRowsInBlock));
    }
    return out;
  }
};

void bind_table(nb::module_& m) {
  nb::class_<ColumnIdentity>(m, "ColumnIdentity")
      .def(nb::init<nb::object>(), "table"_a)
      .def_prop_ro("path", [](const ColumnIdentity& t) { return t.table->path; })
      .def_prop_ro("width", &ColumnIdentity::width)
      .def_prop_ro("fingerprint_count", [](const ColumnIdentity& t) { return t.table->header.count; })
      .def_prop_ro("block_count", [](const ColumnIdentity& t) { return t.table->block_count(); })
      .def_prop_ro("file_bytes", [](const ColumnIdentity& t) { return t.table->header.file_bytes; })
      .def_prop_ro("set_digest", [](const ColumnIdentity& t) { return t.table->header.set_digest; })
      .def_prop_ro("permutation",
                   [](const ColumnIdentity& t) {
                     return nb::bytes(reinterpret_cast<const char*>(t.table->header.permutation), t.table->header.width);
                   })
      .def("decode", &ColumnIdentity::decode, "first_block"_a, "end_block"_a, "room"_a)
      .def("scan", &ColumnIdentity::scan, nb::arg("queries").noconvert(), "radius"_a, "first_block"_a, "end_block"_a,
           "stop"_a = nb::none())
      .def("probe", &ColumnIdentity::probe, nb::arg("queries").noconvert(), "radius"_a, "most"_a = nb::none(), "stop"_a = nb::none())
      .def("nearest", &ColumnIdentity::nearest, nb::arg("queries").noconvert(), "radius"_a, "limit"_a, "first_block"_a,
           "end_block"_a, nb::arg("absent").noconvert(), "stop"_a = nb::none())
      .def("locate", &ColumnIdentity::locate, nb::arg("fingerprints").noconvert())
      .def("locate_one", &ColumnIdentity::locate_one, "fingerprint"_a)
      .def("entries_at", &ColumnIdentity::entries_at, nb::arg("blocks").noconvert(), nb::arg("ranks").noconvert(), "source"_a)
      .def("entry_at", &ColumnIdentity::entry_at, "block"_a, "rank"_a, "source"_a)
      .def("key_of", &ColumnIdentity::key_of, "block"_a)
      .def("keys_of", &ColumnIdentity::keys_of, nb::arg("blocks").noconvert());

  nb::class_<ColumnTable> table(m, "ColumnTable");
  bind_column_header(table);
  table.def(nb::init<Bytes, std::string>(), nb::arg("data").noconvert(), "path"_a)
      .def("decode", &ColumnTable::decode, "first"_a, "end"_a)
      .def("entries_at", &ColumnTable::entries_at, nb::arg("places").noconvert(), "source"_a)
      .def("keys_of", &ColumnTable::keys_of, nb::arg("blocks").noconvert())
      .def("locate", &ColumnTable::locate, nb::arg("fingerprints").noconvert())
      .def("scan", &ColumnTable::scan, nb::arg("queries").noconvert(), "radius"_a, "first"_a, "end"_a, "stop"_a = nb::none());
}

}  // namespace

void bind_columns(nb::module_& m) {
  bind_table(m);
  nb::class_<ColumnProber>(m, "ColumnProber")
      .def(nb::init<nb::list, nb::object>(), "tables"_a, "rows"_a = nb::none())
      .def("probe", &ColumnProber::probe, nb::arg("queries").noconvert(), "radius"_a, "thresholds"_a = nb::none(),
           "most"_a = nb::none(), "stop"_a = nb::none())
      .def("probe_one", &ColumnProber::probe_one, "query"_a, "radius"_a, "thresholds"_a.none(), "identity"_a);
  bind_cutter(m);
  bind_parts(m);
}

}  // namespace fpstore
