// Column tables and row files: reading one, probing those of a design, and what their writer needs.
#include "columns/column_header.hpp"
#include "columns/kernels.hpp"
#include "columns/read.hpp"
#include "columns/results.hpp"
#include "columns/verify.hpp"
#include "columns/write.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using AnyWords = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;

const char* describe_column(Status status) {
  switch (status) {
    case Status::bad_magic: return "not a column table (magic bytes differ)";
    case Status::bad_permutation: return "header permutation is not a permutation of its bits";
    case Status::bad_block_checksum: return "page checksum differs";
    case Status::bad_block_order: return "entries out of order";
    case Status::bad_key: return "a reference leads to a row of another bucket or tag";
    case Status::bad_directory: return "directory does not match the entries";
    case Status::bad_place: return "a reference leads to no row";
    default: return describe(status);
  }
}

// What is wrong with a page or an entry, by its number.
[[noreturn]] void raise_column(const Fault& fault, const std::string& path) {
  const bool newer = fault.status == Status::unknown_version || fault.status == Status::unknown_flags ||
                     fault.status == Status::unknown_width;
  if (newer || fault.status == Status::interrupted || fault.status == Status::out_of_memory) raise_fault(fault, path);
  nb::dict facts;
  facts["path"] = path;
  facts["expected"] = fault.expected;
  facts["got"] = fault.got;
  std::string where = path;
  if (fault.block != UINT64_MAX) {
    facts["block"] = fault.block;
    where += (fault.status == Status::bad_block_checksum ? ", page " : ", entry ") + std::to_string(fault.block);
  }
  raise("CorruptStoreError",
        where + ": " + describe_column(fault.status) + " (expected " + std::to_string(fault.expected) + ", got " +
            std::to_string(fault.got) + ")",
        facts);
}

void check_column(Status status, const Fault& fault, const std::string& path) {
  if (status != Status::ok) raise_column(fault, path);
}

nb::object row_array(Buffer<uint64_t>* words, size_t n, unsigned each) {
  nb::object flat = words->array(n * each);
  return each == 1 ? flat : nb::object(flat.attr("reshape")(n, each));
}

// Fingerprints of the width of a header: (n,), or (n, words).
ColumnQueries fingerprints_of(const AnyWords& array, const ColumnHeader& h) {
  const unsigned words = words_of(h);
  if (words == 1 ? array.ndim() != 1 : array.ndim() != 2 || array.shape(1) != words)
    throw nb::value_error("fingerprints are an array of shape (n,), or (n, words) where they are wider than 64 bits");
  if (array.shape(0) > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 fingerprints a call");
  if (h.width < 64)
    for (size_t i = 0; i < array.shape(0); ++i)
      if (array.data()[i] & ~top_mask(h.width)) throw nb::value_error("a fingerprint has bits below its width");
  return {array.data(), array.shape(0)};
}

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
  uint64_t block_count() const { return (header.count + kRowsInBlock - 1) / kRowsInBlock; }
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
  nb::tuple scan(AnyWords queries, unsigned radius, uint64_t first, uint64_t end, const Stop* stop) const {
    check_searched();
    check_range(first, end);
    const ColumnQueries asked = fingerprints_of(queries, header);
    SinkGuard guard;
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = scan_entries(view, {first, end}, asked, radius, &stopping, &guard.sink, &fault);
    }
    check_column(status, fault, path);
    return finish(&guard.sink, asked.count, &stopping);
  }

  void verify(const ColumnTable* rows, const Stop* stop) const {
    if (rows && (header.kind != ColumnKind::references || rows->header.kind != ColumnKind::rows))
      throw nb::type_error("references are verified with a row file");
    if (rows && (rows->header.width != header.width || rows->header.count != header.count || rows->header.set_digest != header.set_digest))
      raise_column(Fault{Status::bad_digest, UINT64_MAX, rows->header.set_digest, header.set_digest}, path);
    const std::unique_ptr<uint64_t[]> unseen = fresh();
    const std::unique_ptr<ColumnView> anew(new ColumnView(view));
    anew->pages.seen = unseen.get();
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = verify_columns(header, *anew, rows ? &rows->view : nullptr, &stopping, &fault);
    }
    check_column(status, fault, fault.table ? rows->path : path);
  }

  static nb::tuple finish(Sink* sink, size_t query_count, Stopper* stop) {
    Buffer<int64_t> lims(query_count + 1);
    Buffer<uint64_t> values(sink->count);
    Buffer<uint16_t> distances(sink->count);
    Status status;
    {
      ReleasedGil released;
      status = order_column_matches(sink, query_count, lims.get(), values.get(), distances.get(), stop);
    }
    check_column(status, Fault{status}, "");
    return nb::make_tuple(lims.array(query_count + 1), values.array(sink->count), distances.array(sink->count));
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
      (i < h.bucket_bits ? r.bucket_mask : r.tag_mask)[source / 64] |= uint64_t{1} << (63 - source % 64);
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

  std::vector<int16_t> thresholds_for(const std::optional<std::vector<int>>& given, unsigned radius) const {
    if (given && given->size() != ring.size()) throw nb::value_error("a threshold for each table");
    std::vector<int16_t> out;
    uint64_t sum = 0;
    for (size_t i = 0; i < ring.size(); ++i) {
      const int t = given ? (*given)[i] : tables[i]->header.allowance - 1;
      if (t < -1 || t > static_cast<int>(kMaxColumnWidth)) throw nb::value_error("a threshold is -1 to 256");
      out.push_back(static_cast<int16_t>(t));
      sum += static_cast<unsigned>(t + 1);
    }
    if (sum <= radius) throw nb::value_error("the thresholds, one added to each, must add up to more than the radius");
    return out;
  }

  // (lims, fingerprints, distances, rows or None, (look-ups, candidates, survivors)), or None when there are more than most matches.
  nb::object probe(AnyWords queries, unsigned radius, std::optional<std::vector<int>> thresholds, bool balance,
                   std::optional<uint64_t> most, const Stop* stop) const {
    const ColumnHeader& h = tables[0]->header;
    radius = std::min<unsigned>(radius, h.width);
    const std::vector<int16_t> chosen = balance ? std::vector<int16_t>(ring.size()) : thresholds_for(thresholds, radius);
    const ColumnQueries asked = fingerprints_of(queries, h);
    SinkGuard guard;
    if (most) guard.sink.limit = *most;
    ColumnCounters counters;
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status;
    const ColumnKernels& k = column_kernels();
    const ColumnProbe run = words_of(h) == 1 ? k.probe_copies : words_of(h) == 2 ? k.probe_pairs : k.probe_fours;
    {
      ReleasedGil released;
      status = run({ring.data(), static_cast<unsigned>(ring.size()), rows ? &rows->view : nullptr}, asked,
                   {radius, chosen.data(), balance, &stopping}, &guard.sink, &counters, &fault);
    }
    if (status == Status::out_of_memory && guard.sink.count >= guard.sink.limit) return nb::none();
    if (status != Status::ok) raise_column(fault, fault.table < tables.size() ? tables[fault.table]->path : rows->path);
    nb::tuple columns = ColumnTable::finish(&guard.sink, asked.count, &stopping);
    nb::tuple counts = nb::make_tuple(counters.lookups, counters.candidates, counters.survivors);
    if (!rows) return nb::make_tuple(columns[0], columns[1], columns[2], nb::none(), counts);
    nb::object found = rows->entries_at(nb::cast<Words>(columns[1]), rows->path);
    return nb::make_tuple(columns[0], found, columns[2], columns[1], counts);
  }
};

// Cuts what a writer is given into the sections of a file that a header describes.
struct ColumnCutter {
  ColumnHeader header;
  std::vector<uint8_t> header_bytes = std::vector<uint8_t>(kHeaderBytes);
  ColumnFeed state;
  std::vector<uint32_t> bucket_counts;

  ColumnCutter(unsigned kind, unsigned width, uint64_t count, uint64_t set_digest, Bytes permutation, unsigned bucket_bits,
               unsigned tag_bits, unsigned allowance, unsigned table, unsigned table_count) {
    if (permutation.size() != width || width > kMaxColumnWidth) throw nb::value_error("a permutation has an entry for each bit");
    for (const unsigned field : {kind, bucket_bits, tag_bits, allowance, table, table_count})
      if (field > UINT16_MAX) throw nb::value_error("a field of a header is too large");
    header.width = static_cast<uint16_t>(width);
    header.kind = static_cast<ColumnKind>(kind);
    header.table = static_cast<uint16_t>(table);
    header.table_count = static_cast<uint16_t>(table_count);
    header.bucket_bits = static_cast<uint16_t>(bucket_bits);
    header.tag_bits = static_cast<uint16_t>(tag_bits);
    header.allowance = static_cast<uint16_t>(allowance);
    header.count = count;
    header.set_digest = set_digest;
    memcpy(header.permutation, permutation.data(), width);
    Fault fault;
    if (write_column_header(&header, header_bytes.data(), &fault) != Status::ok)
      throw nb::value_error((std::string("no such column table: ") + describe_column(fault.status)).c_str());
    bucket_counts.resize(uint64_t{1} << bucket_bits);
  }

  [[noreturn]] void raise_order(uint64_t got) const {
    nb::dict facts;
    facts["expected"] = state.any ? state.last[0] : 0;
    facts["got"] = got;
    raise("InputError", "keys out of order: each must be greater than the one before, with no bit below its rest", facts);
  }

  // (tags, rests) of sorted keys.
  nb::tuple cut(Words keys) {
    if (header.kind == ColumnKind::rows) throw nb::type_error("a row file holds rows");
    Buffer<uint8_t> tags(2 * keys.size()), rests(rest_bytes(header) * keys.size() + 1);
    size_t n;
    {
      ReleasedGil released;
      n = cut_keys(header, keys.data(), keys.size(), &state, bucket_counts.data(), tags.get(), rests.get());
    }
    if (n < keys.size()) raise_order(keys.data()[n]);
    return nb::make_tuple(tags.array(2 * n), rests.array(rest_bytes(header) * n));
  }

  void count(AnyWords rows) {
    if (header.kind != ColumnKind::rows) throw nb::type_error("only a row file holds rows");
    const ColumnQueries given = fingerprints_of(rows, header);
    size_t n;
    {
      ReleasedGil released;
      n = count_rows(header, given.words, given.count, &state, bucket_counts.data());
    }
    if (n < given.count) raise_order(given.words[words_of(header) * n]);
  }

  nb::object directory() const {
    Buffer<uint32_t> out(bucket_counts.size() + 1);
    uint32_t sum = 0;
    for (size_t i = 0; i < bucket_counts.size(); ++i) {
      out.get()[i] = sum;
      sum += bucket_counts[i];
    }
    out.get()[bucket_counts.size()] = sum;
    return out.array(bucket_counts.size() + 1);
  }
};

nb::object checksums_of(Bytes data, uint64_t seed, uint64_t first) {
  const size_t n = (data.size() + kPageBytes - 1) / kPageBytes;
  Buffer<uint64_t> out(n);
  {
    ReleasedGil released;
    page_checksums(data.data(), data.size(), seed, first, out.get());
  }
  return out.array(n);
}

uint64_t digest_of(AnyWords words) {
  const size_t each = words.ndim() == 1 ? 1 : words.ndim() == 2 ? words.shape(1) : 0;
  if (each != 1 && each != 2 && each != 4) throw nb::value_error("fingerprints are an array of shape (n,), (n, 2) or (n, 4)");
  ReleasedGil released;
  return words_digest(words.data(), words.shape(0), static_cast<unsigned>(each));
}

// The keys of references to rows from number first on of a file of count rows; not sorted.
nb::object reference_keys(AnyWords rows, uint64_t first, uint64_t count, Bytes permutation, unsigned bucket_bits) {
  const size_t n = rows.ndim() == 2 ? rows.shape(0) : 0, each = rows.ndim() == 2 ? rows.shape(1) : 0;
  ColumnHeader h;
  h.kind = ColumnKind::references;
  h.count = count;
  const unsigned head = bucket_bits + kTagBits, rest = rest_bits_for(h);
  if ((each != 2 && each != 4) || permutation.size() != 64 * each) throw nb::value_error("rows are an array of shape (n, 2) or (n, 4)");
  if (bucket_bits > kMaxBucketBits || head + rest > 64 || first > count || n > count - first)
    throw nb::value_error("bucket, tag and row number do not fit a key");
  for (size_t i = 0; i < permutation.size(); ++i)
    if (permutation.data()[i] >= 64 * each) throw nb::value_error("not a permutation");
  Terms terms;
  make_terms(permutation.data(), head, &terms);
  Buffer<uint64_t> out(n);
  {
    ReleasedGil released;
    for (size_t i = 0; i < n; ++i)
      out.get()[i] = gather(terms, rows.data() + each * i) | (rest ? (first + i) << (64 - head - rest) : 0);
  }
  return out.array(n);
}

void bind_table(nb::module_& m) {
  nb::class_<ColumnTable>(m, "ColumnTable")
      .def(nb::init<Bytes, std::string>(), nb::arg("data").noconvert(), "path"_a)
      .def_ro("path", &ColumnTable::path)
      .def_prop_ro("version", [](const ColumnTable& t) { return t.header.version; })
      .def_prop_ro("width", [](const ColumnTable& t) { return t.header.width; })
      .def_prop_ro("kind", [](const ColumnTable& t) { return static_cast<unsigned>(t.header.kind); })
      .def_prop_ro("table", [](const ColumnTable& t) { return t.header.table; })
      .def_prop_ro("table_count", [](const ColumnTable& t) { return t.header.table_count; })
      .def_prop_ro("bucket_bits", [](const ColumnTable& t) { return t.header.bucket_bits; })
      .def_prop_ro("tag_bits", [](const ColumnTable& t) { return t.header.tag_bits; })
      .def_prop_ro("threshold", [](const ColumnTable& t) { return t.header.allowance - 1; })
      .def_prop_ro("rest_bits", [](const ColumnTable& t) { return t.header.rest_bits; })
      .def_prop_ro("count", [](const ColumnTable& t) { return t.header.count; })
      .def_prop_ro("block_count", &ColumnTable::block_count)
      .def_prop_ro("directory_offset", [](const ColumnTable& t) { return t.header.directory_offset; })
      .def_prop_ro("tags_offset", [](const ColumnTable& t) { return t.header.tags_offset; })
      .def_prop_ro("rest_offset", [](const ColumnTable& t) { return t.header.rest_offset; })
      .def_prop_ro("checksums_offset", [](const ColumnTable& t) { return t.header.checksums_offset; })
      .def_prop_ro("file_bytes", [](const ColumnTable& t) { return t.header.file_bytes; })
      .def_prop_ro("set_digest", [](const ColumnTable& t) { return t.header.set_digest; })
      .def_prop_ro("seed", [](const ColumnTable& t) { return t.header.checksum; })
      .def_prop_ro("permutation",
                   [](const ColumnTable& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.permutation), t.header.width); })
      .def("decode", &ColumnTable::decode, "first"_a, "end"_a)
      .def("entries_at", &ColumnTable::entries_at, nb::arg("places").noconvert(), "source"_a)
      .def("keys_of", &ColumnTable::keys_of, nb::arg("blocks").noconvert())
      .def("locate", &ColumnTable::locate, nb::arg("fingerprints").noconvert())
      .def("scan", &ColumnTable::scan, nb::arg("queries").noconvert(), "radius"_a, "first"_a, "end"_a, "stop"_a = nb::none())
      .def("verify", &ColumnTable::verify, "rows"_a = nb::none(), "stop"_a = nb::none());
}

}  // namespace

void bind_columns(nb::module_& m) {
  bind_table(m);
  nb::class_<ColumnProber>(m, "ColumnProber")
      .def(nb::init<nb::list, nb::object>(), "tables"_a, "rows"_a = nb::none())
      .def("probe", &ColumnProber::probe, nb::arg("queries").noconvert(), "radius"_a, "thresholds"_a = nb::none(),
           "balance"_a = false, "most"_a = nb::none(), "stop"_a = nb::none());
  nb::class_<ColumnCutter>(m, "ColumnCutter")
      .def(nb::init<unsigned, unsigned, uint64_t, uint64_t, Bytes, unsigned, unsigned, unsigned, unsigned, unsigned>(), "kind"_a,
           "width"_a, "count"_a, "set_digest"_a, "permutation"_a, "bucket_bits"_a, "tag_bits"_a, "allowance"_a, "table"_a,
           "table_count"_a)
      .def_prop_ro("header", [](const ColumnCutter& c) { return nb::bytes(reinterpret_cast<const char*>(c.header_bytes.data()), kHeaderBytes); })
      .def_prop_ro("tags_offset", [](const ColumnCutter& c) { return c.header.tags_offset; })
      .def_prop_ro("rest_offset", [](const ColumnCutter& c) { return c.header.rest_offset; })
      .def_prop_ro("checksums_offset", [](const ColumnCutter& c) { return c.header.checksums_offset; })
      .def_prop_ro("file_bytes", [](const ColumnCutter& c) { return c.header.file_bytes; })
      .def_prop_ro("seed", [](const ColumnCutter& c) { return c.header.checksum; })
      .def("cut", &ColumnCutter::cut, nb::arg("keys").noconvert())
      .def("count", &ColumnCutter::count, nb::arg("rows").noconvert())
      .def("directory", &ColumnCutter::directory);
  m.attr("ROWS_IN_BLOCK") = kRowsInBlock;
  m.attr("PAGE_BYTES") = kPageBytes;
  m.def("page_checksums", &checksums_of, "data"_a, "seed"_a, "first"_a);
  m.def("words_digest", &digest_of, nb::arg("words").noconvert());
  m.def("reference_keys", &reference_keys, nb::arg("rows").noconvert(), "first"_a, "count"_a, "permutation"_a, "bucket_bits"_a);
}

}  // namespace fpstore
