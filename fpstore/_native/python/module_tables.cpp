// The classes of the module: a table, the tables of a design with their look-ups, an encoder.
#include "format/xxh64.hpp"
#include "python/module.hpp"
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
  make_permutation(header.permutation, &view.forward, &view.inverse);
  make_decode_table(header.code_bits, &view.code);
  return view;
}

// A table of which only the header is known; its blocks are given to decode, a part at a time, from wherever they were read.
struct TableParts {
  std::string path;
  TableHeader header;
  TableView view;

  TableParts(Bytes start, uint64_t file_bytes, std::string name) : path(std::move(name)) {
    Fault fault;
    const uint64_t known = start.size() < kHeaderBytes ? start.size() : file_bytes;
    check(parse_header(start.data(), known, &header, &fault), fault, path);
    view = view_of(header);
  }

  // (values, entry counts): decodes successive blocks, from number first on, while they fit into room entries. The keys are
  // those of the blocks, after that of the block before, which is 0 for the first; kOverread bytes follow the blocks.
  nb::tuple decode(Bytes blocks, Words keys, uint64_t first, uint64_t room) const {
    const uint64_t n = blocks.size() < kOverread ? 0 : (blocks.size() - kOverread) / view.block_bytes;
    if (first > view.block_count || n > view.block_count - first || keys.size() != n + 1)
      throw nb::index_error("block range outside the table");
    if (room < 2 * kMaxEntries) room = 2 * kMaxEntries;
    // The checksum of a block depends on its number and on the key before: of the first, that is no key but 0.
    TableView part = view;
    part.blocks = blocks.data();
    part.keys = keys.data() + 1;
    part.block_count = n;
    part.seed += first * xxh::kP3 + (first ? keys.data()[0] * xxh::kP2 : 0);
    Buffer<uint64_t> out(room + 8);
    Buffer<uint32_t> counts(n);
    Decoded to{out.get(), room, counts.get()};
    Fault fault;
    Status status = Status::ok;
    {
      ReleasedGil released;
      const uint64_t alone = first && n ? 1 : 0;
      if (alone) status = kernels().decode_blocks(part, {0, 1}, &to, &fault);
      if (status == Status::ok) {
        part.seed = view.seed + first * xxh::kP3;
        to.counts += alone;
        status = kernels().decode_blocks(part, {alone, n}, &to, &fault);
      }
    }
    if (status != Status::ok && fault.block != UINT64_MAX) fault.block += first;
    check(status, fault, path);
    return nb::make_tuple(out.array(to.written), counts.array(to.blocks));
  }
};

struct Table {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  TableHeader header;
  TableView view;

  Table(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
    if (reinterpret_cast<uintptr_t>(data.data()) % alignof(uint64_t)) throw nb::value_error("a table begins at a multiple of 8 bytes");
    Fault fault;
    check(parse_header(data.data(), data.size(), &header, &fault), fault, path);
    const uint8_t* p = data.data();
    view = view_of(header);
    view.blocks = p + header.blocks_offset;
    view.keys = reinterpret_cast<const uint64_t*>(p + header.keys_offset);
    view.directory = reinterpret_cast<const uint64_t*>(p + header.directory_offset);
  }

  void check_range(uint64_t b0, uint64_t b1) const {
    if (b0 > b1 || b1 > view.block_count) throw nb::index_error("block range outside the table");
  }

  // (values, entry counts, next block): decodes blocks from b0 on while they fit into room entries.
  nb::tuple decode(uint64_t b0, uint64_t b1, uint64_t room) const {
    check_range(b0, b1);
    room = std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(b1 - b0, 2) * kMaxEntries);
    Buffer<uint64_t> out(room + 8);
    Buffer<uint32_t> counts(b1 - b0);
    Decoded to{out.get(), room, counts.get()};
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = kernels().decode_blocks(view, {b0, b1}, &to, &fault);
    }
    check(status, fault, path);
    return nb::make_tuple(out.array(to.written), counts.array(to.blocks), b0 + to.blocks);
  }

  nb::tuple scan(Words queries, unsigned radius, uint64_t b0, uint64_t b1, const Stop* stop) const {
    check_range(b0, b1);
    if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
    SinkGuard guard;
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status;
    {
      ReleasedGil released;
      status = kernels().scan(view, {b0, b1}, {queries.data(), queries.size()}, {radius, &stopping}, &guard.sink, &fault);
    }
    check(status, fault, path);
    return finish(guard.sink, queries.size(), &stopping);
  }

  // (lims, fingerprints, distances, more): the nearest entries of each query within the radius, without the absent ones, which
  // ascend; and whether there are others.
  nb::tuple nearest(Words queries, unsigned radius, uint64_t limit, uint64_t b0, uint64_t b1, Words absent, const Stop* stop) const {
    check_range(b0, b1);
    if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
    if (!limit) throw nb::value_error("limit is at least 1");
    SinkGuard guard;
    NearestGuard kept;
    kept.nearest.absent = absent.data();
    kept.nearest.absent_count = absent.size();
    Stopper stopping = stopper(stop);
    Fault fault;
    Status status = Status::out_of_memory;
    if (start_nearest(&kept.nearest, queries.size(), limit, radius)) {
      ReleasedGil released;
      const ScanOptions options{radius, &stopping, &kept.nearest};
      status = kernels().scan(view, {b0, b1}, {queries.data(), queries.size()}, options, &guard.sink, &fault);
      if (status == Status::ok && !hand_over(&kept.nearest, &guard.sink)) status = Status::out_of_memory;
    }
    if (status == Status::out_of_memory) fault = Fault{status};
    check(status, fault, path);
    nb::tuple columns = finish(guard.sink, queries.size(), &stopping);
    return nb::make_tuple(columns[0], columns[1], columns[2], more_of(kept.nearest));
  }

  nb::tuple locate(Words fingerprints) const {
    const size_t n = fingerprints.size();
    Buffer<uint64_t> blocks(n);
    Buffer<uint32_t> ranks(n);
    Fault fault;
    Status status;
    Stopper stopping = stopper(nullptr);
    {
      ReleasedGil released;
      status = kernels().locate(view, {fingerprints.data(), n}, blocks.get(), ranks.get(), &stopping, &fault);
    }
    check(status, fault, path);
    return nb::make_tuple(blocks.array(n), ranks.array(n));
  }

  // The entry at one place, which the file `source` names.
  uint64_t entry_at(uint64_t block, uint32_t rank, const std::string& source) const {
    if (block >= view.block_count) raise_fault(Fault{Status::bad_place, block, view.block_count, block}, source);
    thread_local const std::unique_ptr<uint64_t[]> entries(new uint64_t[2 * kMaxEntries + 8]);
    uint32_t count = 0;
    Fault fault;
    Decoded to{entries.get(), 2 * kMaxEntries, &count};
    check(kernels().decode_blocks(view, {block, block + 1}, &to, &fault), fault, path);
    if (rank >= count) raise_fault(Fault{Status::bad_place, block, count, rank}, source);
    return entries[rank];
  }

  // The keys of blocks: their last entries.
  nb::object keys_of(Words blocks) const {
    Buffer<uint64_t> out(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) out.get()[i] = key_of(blocks.data()[i]);
    return out.array(blocks.size());
  }

  uint64_t key_of(uint64_t block) const {
    if (block >= view.block_count) throw nb::index_error("no such block");
    return view.keys[block];
  }

  // The entries at places, given by their blocks and ranks, which the file `source` names; each block is decoded once where successive places share it.
  nb::object entries_at(Words blocks, Counts ranks, const std::string& source) const {
    const size_t n = blocks.size();
    if (ranks.size() != n) throw nb::value_error("columns of different lengths");
    Buffer<uint64_t> out(n);
    const std::unique_ptr<uint64_t[]> entries(new uint64_t[2 * kMaxEntries + 8]);
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
          Decoded to{entries.get(), 2 * kMaxEntries, &count};
          status = kernels().decode_blocks(view, {block, block + 1}, &to, &fault);
        }
        const uint32_t rank = ranks.data()[i];
        if (status == Status::ok && rank >= count) status = (fault = Fault{Status::bad_place, block, count, rank}).status;
        if (status == Status::ok) out.get()[i] = entries[rank];
      }
    }
    check(status, fault, status == Status::bad_place ? source : path);
    return out.array(n);
  }

  // (block, rank) or None.
  nb::object locate_one(uint64_t fingerprint) const {
    uint64_t block;
    uint32_t rank;
    Fault fault;
    check(kernels().locate(view, {&fingerprint, 1}, &block, &rank, nullptr, &fault), fault, path);
    if (block == UINT64_MAX) return nb::none();
    return nb::make_tuple(block, rank);
  }

  static nb::tuple finish(const Sink& sink, size_t query_count, Stopper* stop) {
    Buffer<int64_t> lims(query_count + 1);
    Buffer<uint64_t> fingerprints(sink.count);
    Buffer<uint8_t> distances(sink.count);
    Status status;
    {
      ReleasedGil released;
      status = order_matches(sink, query_count, lims.get(), fingerprints.get(), distances.get(), stop);
    }
    check(status, Fault{status}, "");
    return nb::make_tuple(lims.array(query_count + 1), fingerprints.array(sink.count), distances.array(sink.count));
  }
};

// What the header of a table says.
template <class T>
void bind_header(nb::class_<T>& bound) {
  bound
      .def_ro("path", &T::path)
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
      .def_prop_ro("permutation", [](const T& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.permutation), 64); })
      .def_prop_ro("code_bits", [](const T& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.code_bits), 64); });
}

// The tables of a design with, for one query radius, what to look up in each.
struct Prober {
  std::vector<nb::object> owners;
  std::vector<const Table*> tables;
  std::vector<std::vector<uint64_t>> variants;
  std::vector<TableProbe> probes;
  // Of calls of few queries; many keep a disk busy with what the system reads ahead of them.
  static constexpr size_t kFewQueries = 1 << 10;
  mutable PageWatch pages;
  mutable std::atomic<uint64_t> fetches{0}, blocks{0};  // requests for pages ahead, and blocks read, of all calls

  void add(nb::object table, unsigned prefix_bits, unsigned flips, Words masks) {
    const Table* t = nb::cast<const Table*>(table);
    if (prefix_bits > 64) throw nb::value_error("prefix_bits is at most 64");
    owners.push_back(table);
    tables.push_back(t);
    variants.emplace_back(masks.data(), masks.data() + masks.size());
    probes.push_back(TableProbe{&t->view, prefix_bits, flips, apply(t->view.inverse, top_mask(prefix_bits)), nullptr,
                                masks.size()});
    for (size_t i = 0; i < probes.size(); ++i) probes[i].variants = variants[i].data();
  }

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
      status = kernels().scan(view, {0, view.block_count}, {queries + q, count}, {options.radius, options.stop}, sink, fault);
      for (uint64_t i = first; i < sink->count; ++i) sink->matches[i].query += static_cast<uint32_t>(q);
      counters->blocks += view.block_count;
      counters->candidates += view.fingerprint_count * count;
    }
    return status;
  }

  // False when the sink is full.
  bool run(const uint64_t* queries, size_t n, ProbeOptions options, Sink* sink, ProbeCounters* counters) const {
    Fault fault;
    Status status;
    if (n <= kFewQueries) options.pages = &pages;
    {
      ReleasedGil released;
      if (scans() && options.sweep_from == ProbeOptions::kDense)
        status = scan(queries, n, options, sink, counters, &fault);
      else
        status = kernels().probe({probes.data(), static_cast<unsigned>(probes.size())}, {queries, n}, options, sink, counters, &fault);
    }
    blocks.fetch_add(counters->blocks, std::memory_order_relaxed);
    if (counters->fetches) fetches.fetch_add(counters->fetches, std::memory_order_relaxed);
    if (status == Status::out_of_memory && sink->count >= sink->limit) return false;
    if (status != Status::ok) raise_fault(fault, tables[fault.table]->path);
    return true;
  }

  // (lims, fingerprints, distances, blocks read, candidates), or None when there are more than most matches.
  nb::object probe(Words queries, unsigned radius, std::optional<uint64_t> most, std::optional<uint64_t> sweep_from,
                   bool fetch, const Stop* stop) const {
    if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
    SinkGuard guard;
    ProbeCounters counters;
    ProbeOptions options{radius};
    if (sweep_from) options.sweep_from = *sweep_from;
    options.fetch = fetch;
    Stopper stopping = stopper(stop);
    options.stop = &stopping;
    if (most) guard.sink.limit = *most;
    if (!run(queries.data(), queries.size(), options, &guard.sink, &counters)) return nb::none();
    nb::tuple columns = Table::finish(guard.sink, queries.size(), &stopping);
    return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
  }

  // [(fingerprint, distance, block, rank), ...] by distance, fingerprint; block and rank are places in the identity table.
  nb::list probe_one(uint64_t query, unsigned radius, const Table& identity) const {
    SinkGuard guard;
    ProbeCounters counters;
    ProbeOptions options{radius};
    Stopper stopping = stopper(nullptr);
    options.stop = &stopping;
    run(&query, 1, options, &guard.sink, &counters);
    const size_t n = guard.sink.count;
    std::vector<int64_t> lims(2);
    std::vector<uint64_t> fingerprints(n), blocks(n);
    std::vector<uint8_t> distances(n);
    std::vector<uint32_t> ranks(n);
    Status status = order_matches(guard.sink, 1, lims.data(), fingerprints.data(), distances.data(), &stopping);
    check(status, Fault{status}, "");
    Fault fault;
    status = kernels().locate(identity.view, {fingerprints.data(), n}, blocks.data(), ranks.data(), &stopping, &fault);
    check(status, fault, identity.path);
    nb::list out;
    for (size_t i = 0; i < n; ++i) {
      if (should_stop(&stopping, kBlockWork)) throw Interrupted();
      if (blocks[i] == UINT64_MAX) raise_fault(Fault{Status::bad_digest, UINT64_MAX, fingerprints[i], 0}, identity.path);
      out.append(nb::make_tuple(fingerprints[i], distances[i], blocks[i], ranks[i]));
    }
    return out;
  }
};

// Encodes one table: feed() sorted permuted keys, then finish().
struct BlockEncoder {
  std::unique_ptr<Encoder> state{new Encoder};
  uint64_t entries = 0;

  BlockEncoder(Bytes code_bits, uint32_t block_bytes, uint64_t seed) {
    if (code_bits.size() != kSymbols || make_encode_table(code_bits.data(), &state->code) != Status::ok)
      throw nb::value_error("not a complete code over 64 symbols");
    if (block_bytes < kMinBlockBytes || block_bytes > kMaxBlockBytes || (block_bytes & (block_bytes - 1)))
      throw nb::value_error("block_bytes must be a power of two from 128 to 4096");
    state->seed = seed;
    state->block_bytes = block_bytes;
    state->block_index = state->previous_key = 0;
    state->count = 0;
  }

  // Room that feed() needs for the blocks of n keys: an entry takes at most 16 + 63 bits, so a closed block holds many.
  size_t most_blocks(size_t n) const {
    const size_t least = 1 + (state->block_bytes - kBlockHeaderBytes) * 8 / (kMaxCodeBits + 63);
    return n / least + 2;
  }

  // Writes the blocks that were completed, their keys and entry counts to the front of the arrays; returns how many.
  size_t feed(Words keys, MutableBytes blocks, MutableWords block_keys, MutableCounts counts) {
    const size_t most = most_blocks(keys.size());
    if (blocks.size() < most * state->block_bytes + kOverread || block_keys.size() < most || counts.size() < most)
      throw nb::value_error("an output is too short");
    size_t bad = 0, n;
    {
      ReleasedGil released;
      n = kernels().encode(state.get(), keys.data(), keys.size(), {blocks.data(), block_keys.data(), counts.data()}, &bad);
    }
    if (n == SIZE_MAX) {
      const uint64_t got = keys.data()[bad];
      const uint64_t before = bad ? keys.data()[bad - 1] : state->count ? state->last : state->previous_key;
      if (got > before) throw nb::value_error("the code has no symbol for a key: it is not that of these keys");
      nb::dict facts;
      facts["expected"] = before;
      facts["got"] = got;
      raise("InputError", "keys out of order at " + std::to_string(entries + bad) + ": each must be greater than the one before",
            facts);
    }
    entries += keys.size();
    return n;
  }

  nb::tuple finish() {
    Buffer<uint8_t> block(state->block_bytes + kOverread);
    Buffer<uint64_t> key(1);
    Buffer<uint32_t> count(1);
    const size_t n = kernels().encode_finish(state.get(), {block.get(), key.get(), count.get()});
    return nb::make_tuple(block.array(n * state->block_bytes), key.array(n), count.array(n));
  }
};

}  // namespace

void bind_tables(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Interrupted&) {
      note_interrupted();
    }
  });

  nb::class_<TableParts> parts(m, "TableParts");
  parts.def(nb::init<Bytes, uint64_t, std::string>(), "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &TableParts::decode, "blocks"_a, nb::arg("keys").noconvert(), "first"_a, "room"_a);
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

  nb::class_<Prober>(m, "Prober")
      .def(nb::init<>())
      .def("add", &Prober::add, "table"_a, "prefix_bits"_a, "flips"_a, nb::arg("variants").noconvert())
      .def("probe", &Prober::probe, nb::arg("queries").noconvert(), "radius"_a, "most"_a = nb::none(),
           "sweep_from"_a = nb::none(), "fetch"_a = false, "stop"_a = nb::none())
      .def("probe_one", &Prober::probe_one, "query"_a, "radius"_a, "identity"_a)
      .def_prop_ro("fetches", [](const Prober& p) { return p.fetches.load(std::memory_order_relaxed); })
      .def_prop_ro("blocks", [](const Prober& p) { return p.blocks.load(std::memory_order_relaxed); });

  nb::class_<BlockEncoder>(m, "BlockEncoder")
      .def(nb::init<Bytes, uint32_t, uint64_t>(), "code_bits"_a, "block_bytes"_a, "seed"_a)
      .def("most_blocks", &BlockEncoder::most_blocks, "key_count"_a)
      .def("feed", &BlockEncoder::feed, nb::arg("keys").noconvert(), nb::arg("blocks").noconvert(),
           nb::arg("block_keys").noconvert(), nb::arg("counts").noconvert())
      .def("finish", &BlockEncoder::finish);
}

}  // namespace fpstore
