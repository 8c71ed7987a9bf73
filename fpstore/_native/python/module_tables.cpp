// Tables: mapped whole, or read in parts.
#include "format/xxh64.hpp"
#include "python/table.hpp"
#include "search/results.hpp"

namespace fpstore {
namespace {

// What a header says of a table, wherever its other sections are.
TableView view_of(const TableHeader& header) {
  TableView view{};
  view.block_count = header.block_count;
  view.fingerprint_count = header.fingerprint_count;
  view.seed = block_seed(header);
  view.block_bytes = header.block_bytes;
  view.directory_bits = header.directory_bits;
  make_permutation(header.permutation, header.width, &view.forward, &view.inverse);
  view.codec = codec_of(header);
  if (view.codec == Codec::huffman) make_decode_table(header.code_bits, &view.code);
  return view;
}

// A table of which only the header is known; its blocks are given to decode, a part at a time, from wherever they were read.
struct TableParts {
  std::string path;
  TableHeader header;
  TableView view;

  const Kernels& kernels() const { return fpstore::kernels(header.width); }
  unsigned words() const { return words_of(header.width); }

  TableParts(Bytes start, uint64_t file_bytes, std::string name) : path(std::move(name)) {
    Fault fault;
    const uint64_t known = start.size() < kHeaderBytes ? start.size() : file_bytes;
    check(parse_header(start.data(), known, &header, &fault), fault, path);
    view = view_of(header);
  }

  // (values, entry counts): decodes successive blocks, from number first on, while they fit into room entries. The keys are
  // those of the blocks, after that of the block before, which is 0 for the first; kOverread bytes follow the blocks. Values are put
  // into an array, if there is one, with room for 8 more: those that are returned are its front.
  nb::tuple decode(Bytes blocks, Rows keys, uint64_t first, uint64_t room, nb::object into) const {
    std::optional<MutableRows> given;
    if (!into.is_none()) given = nb::cast<MutableRows>(into, false);
    need_words(keys, words());
    if (given) need_words(*given, words());
    const uint64_t n = blocks.size() < kOverread ? 0 : (blocks.size() - kOverread) / view.block_bytes;
    if (first > view.block_count || n > view.block_count - first || count_of(keys) != n + 1)
      throw nb::index_error("block range outside the table");
    // The index has the leading words, and the rest elsewhere.
    const unsigned rest_words = words() - 1;
    std::vector<uint64_t> leads(n + 1), rests(n * rest_words);
    for (uint64_t i = 0; i <= n; ++i) {
      leads[i] = keys.data()[i * words()];
      for (unsigned j = 0; j < rest_words && i; ++j) rests[(i - 1) * rest_words + j] = keys.data()[i * words() + 1 + j];
    }
    room = std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(n, 2) * kMaxEntries);
    if (given && count_of(*given) < room + 8) throw nb::value_error("fewer rows than decoding needs");
    TableView part = view;
    part.blocks = blocks.data();
    part.keys = leads.data() + 1;
    part.key_rests = rests.data();
    part.block_count = n;
    part.first_block = first;
    part.key_before = first ? leads[0] : 0;
    Buffer<uint64_t> out(given ? 0 : room * words() + 8);
    Buffer<uint32_t> counts(n);
    Decoded to{given ? given->data() : out.get(), room, counts.get()};
    Fault fault;
    Status status = Status::ok;
    {
      ReleasedGil released;
      status = kernels().decode_blocks(part, {0, n}, &to, &fault);
    }
    if (status != Status::ok && fault.block != UINT64_MAX) fault.block += first;
    check(status, fault, path);
    const nb::object values = given ? into[nb::slice(size_t{0}, static_cast<size_t>(to.written))] : out.array(to.written, words());
    return nb::make_tuple(values, counts.array(to.blocks));
  }
};

}  // namespace

Table::Table(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
  if (reinterpret_cast<uintptr_t>(data.data()) % alignof(uint64_t)) throw nb::value_error("a table begins at a multiple of 8 bytes");
  Fault fault;
  check(parse_header(data.data(), data.size(), &header, &fault), fault, path);
  const uint8_t* p = data.data();
  view = view_of(header);
  view.blocks = p + header.blocks_offset;
  view.keys = reinterpret_cast<const uint64_t*>(p + header.keys_offset);
  view.key_rests = view.keys + header.block_count;
  view.directory = reinterpret_cast<const uint64_t*>(p + header.directory_offset);
}

void Table::check_range(uint64_t b0, uint64_t b1) const {
  if (b0 > b1 || b1 > view.block_count) throw nb::index_error("block range outside the table");
}

nb::tuple Table::decode(uint64_t b0, uint64_t b1, uint64_t room) const {
  check_range(b0, b1);
  room = std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(b1 - b0, 2) * kMaxEntries);
  Buffer<uint64_t> out(room * words() + 8);
  Buffer<uint32_t> counts(b1 - b0);
  Decoded to{out.get(), room, counts.get()};
  Fault fault;
  Status status;
  {
    ReleasedGil released;
    status = kernels().decode_blocks(view, {b0, b1}, &to, &fault);
  }
  check(status, fault, path);
  return nb::make_tuple(out.array(to.written, words()), counts.array(to.blocks), b0 + to.blocks);
}

nb::tuple Table::scan(Rows queries, unsigned radius, uint64_t b0, uint64_t b1, const Stop* stop) const {
  check_range(b0, b1);
  need_words(queries, words());
  if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
  SinkGuard guard;
  Stopper stopping = stopper(stop);
  Fault fault;
  Status status;
  {
    ReleasedGil released;
    status = kernels().scan(view, {b0, b1}, {queries.data(), count_of(queries)}, {radius, &stopping}, &guard.sink, &fault);
  }
  check(status, fault, path);
  return finish(guard.sink, header.width, count_of(queries), 1, &stopping);
}

nb::tuple Table::nearest(Rows queries, unsigned radius, uint64_t limit, uint64_t b0, uint64_t b1, Rows absent, const Stop* stop) const {
  check_range(b0, b1);
  need_words(queries, words());
  need_words(absent, words());
  if (count_of(queries) > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
  if (!limit) throw nb::value_error("limit is at least 1");
  SinkGuard guard;
  NearestGuard kept;
  kept.nearest.absent = absent.data();
  kept.nearest.absent_count = count_of(absent);
  Stopper stopping = stopper(stop);
  Fault fault;
  Status status = Status::out_of_memory;
  if (start_nearest(&kept.nearest, words(), count_of(queries), limit, radius)) {
    ReleasedGil released;
    const ScanOptions options{radius, &stopping, &kept.nearest};
    status = kernels().scan(view, {b0, b1}, {queries.data(), count_of(queries)}, options, &guard.sink, &fault);
    if (status == Status::ok && !hand_over(&kept.nearest, &guard.sink)) status = Status::out_of_memory;
  }
  if (status == Status::out_of_memory) fault = Fault{status};
  check(status, fault, path);
  nb::tuple columns = finish(guard.sink, header.width, count_of(queries), 1, &stopping);
  return nb::make_tuple(columns[0], columns[1], columns[2], more_of(kept.nearest));
}

nb::tuple Table::locate(Rows fingerprints) const {
  need_words(fingerprints, words());
  const Queries sought{fingerprints.data(), count_of(fingerprints)};
  Fault fault;
  return located(
      sought.count,
      [&](uint64_t* blocks, uint32_t* ranks, Stopper* stop) { return kernels().locate(view, sought, blocks, ranks, stop, &fault); },
      [&](Status status) { check(status, fault, path); });
}

nb::object Table::entry_at(uint64_t block, uint32_t rank, const std::string& source) const {
  if (block >= view.block_count) raise_fault(Fault{Status::bad_place, block, view.block_count, block}, source);
  thread_local const std::unique_ptr<uint64_t[]> entries(new uint64_t[kBlockWords]);
  uint32_t count = 0;
  Fault fault;
  Decoded to{entries.get(), kBlockWords / words(), &count};
  check(kernels().decode_blocks(view, {block, block + 1}, &to, &fault), fault, path);
  if (rank >= count) raise_fault(Fault{Status::bad_place, block, count, rank}, source);
  return number_of(entries.get() + rank * words(), words());
}

nb::object Table::keys_of(Words blocks) const {
  Buffer<uint64_t> out(blocks.size() * words());
  for (size_t i = 0; i < blocks.size(); ++i) copy_key(blocks.data()[i], out.get() + i * words());
  return out.array(blocks.size(), words());
}

nb::object Table::key_of(uint64_t block) const {
  uint64_t key[kMaxWords];
  copy_key(block, key);
  return number_of(key, words());
}

void Table::copy_key(uint64_t block, uint64_t* out) const {
  if (block >= view.block_count) throw nb::index_error("no such block");
  out[0] = view.keys[block];
  for (unsigned i = 1; i < words(); ++i) out[i] = view.key_rests[block * (words() - 1) + i - 1];
}

nb::object Table::entries_at(Words blocks, Counts ranks, const std::string& source) const {
  const size_t n = blocks.size();
  if (ranks.size() != n) throw nb::value_error("columns of different lengths");
  const unsigned words = this->words();
  Buffer<uint64_t> out(n * words);
  const std::unique_ptr<uint64_t[]> entries(new uint64_t[kBlockWords]);
  Fault fault;
  Status status = Status::ok;
  {
    ReleasedGil released;
    uint32_t count = 0;
    for (size_t i = 0; i < n && status == Status::ok; ++i) {
      const uint64_t block = blocks.data()[i];
      if (block >= view.block_count) {
        status = (fault = Fault{Status::bad_place, block, view.block_count, block}).status;
        break;
      }
      if (i == 0 || block != blocks.data()[i - 1]) {
        Decoded to{entries.get(), kBlockWords / words, &count};
        status = kernels().decode_blocks(view, {block, block + 1}, &to, &fault);
      }
      const uint32_t rank = ranks.data()[i];
      if (status == Status::ok && rank >= count) status = (fault = Fault{Status::bad_place, block, count, rank}).status;
      if (status == Status::ok) std::copy_n(entries.get() + rank * words, words, out.get() + i * words);
    }
  }
  check(status, fault, status == Status::bad_place ? source : path);
  return out.array(n, words);
}

nb::object Table::locate_one(nb::handle fingerprint) const {
  const OneRow row(fingerprint, words());
  uint64_t block;
  uint32_t rank;
  Fault fault;
  check(kernels().locate(view, {row.words, 1}, &block, &rank, nullptr, &fault), fault, path);
  if (block == UINT64_MAX) return nb::none();
  return nb::make_tuple(block, rank);
}

nb::tuple Table::finish(const Sink& sink, unsigned width, size_t query_count, unsigned threads, Stopper* stop) {
  std::optional<OrderedMatches> ordered;
  {
    ReleasedGil released;
    ordered.emplace(sink, width, words_of(width), query_count, threads, stop);
  }
  check(ordered->status, Fault{ordered->status}, "");
  return ordered->columns();
}

namespace {

// What the header of a table says.
template <class T>
void bind_header(nb::class_<T>& bound) {
  bound
      .def_ro("path", &T::path)
      .def_prop_ro("width", [](const T& t) { return t.header.width; })
      .def_prop_ro("version", [](const T& t) { return t.header.version; })
      .def_prop_ro("table", [](const T& t) { return t.header.table; })
      .def_prop_ro("table_count", [](const T& t) { return t.header.table_count; })
      .def_prop_ro("prefix_bits", [](const T& t) { return t.header.prefix_bits; })
      .def_prop_ro("flips", [](const T& t) { return t.header.flips; })
      .def_prop_ro("block_bytes", [](const T& t) { return t.header.block_bytes; })
      .def_prop_ro("fingerprint_count", [](const T& t) { return t.header.fingerprint_count; })
      .def_prop_ro("block_count", [](const T& t) { return t.header.block_count; })
      .def_prop_ro("keys_offset", [](const T& t) { return t.header.keys_offset; })
      .def_prop_ro("directory_offset", [](const T& t) { return t.header.directory_offset; })
      .def_prop_ro("file_bytes", [](const T& t) { return t.header.file_bytes; })
      .def_prop_ro("set_digest", [](const T& t) { return t.header.set_digest; })
      .def_prop_ro("permutation", [](const T& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.permutation), t.header.width); })
      .def_prop_ro("code_bits", [](const T& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.code_bits), kSymbols); });
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Interrupted&) {
      note_interrupted();
    } catch (const std::bad_alloc&) {
      try {
        raise("MemoryLimitError", "out of memory: work on fewer rows at a time", nb::dict());
      } catch (nb::python_error& error) {
        error.restore();
      }
    }
  });

  nb::class_<TableParts> parts(m, "TableParts");
  parts.def(nb::init<Bytes, uint64_t, std::string>(), "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &TableParts::decode, "blocks"_a, nb::arg("keys").noconvert(), "first"_a, "room"_a, "into"_a = nb::none());
  bind_header(parts);

  nb::class_<Table> table(m, "Table");
  bind_header(table);
  table
      .def(nb::init<Bytes, std::string>(), nb::arg("data").noconvert(), "path"_a)
      .def("decode", &Table::decode, "first_block"_a, "end_block"_a, "room"_a)
      .def("scan", &Table::scan, nb::arg("queries").noconvert(), "radius"_a, "first_block"_a, "end_block"_a,
           "stop"_a = nb::none())
      .def("nearest", &Table::nearest, nb::arg("queries").noconvert(), "radius"_a, "limit"_a, "first_block"_a, "end_block"_a,
           nb::arg("absent").noconvert(), "stop"_a = nb::none())
      .def("locate", &Table::locate, nb::arg("fingerprints").noconvert())
      .def("locate_one", &Table::locate_one, "fingerprint"_a)
      .def("entries_at", &Table::entries_at, nb::arg("blocks").noconvert(), nb::arg("ranks").noconvert(), "source"_a)
      .def("entry_at", &Table::entry_at, "block"_a, "rank"_a, "source"_a)
      .def("key_of", &Table::key_of, "block"_a)
      .def("keys_of", &Table::keys_of, nb::arg("blocks").noconvert());

  nb::class_<Stop>(m, "Stop").def(nb::init<>()).def("set", &Stop::set).def("is_set", &Stop::is_set);
}

}  // namespace fpstore
