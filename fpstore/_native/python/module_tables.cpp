// Tables: mapped whole, or read in parts.
#include "python/tables.hpp"

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

  unsigned words() const { return words_of(header.width); }

  TableParts(Bytes start, uint64_t file_bytes, std::string name) : path(std::move(name)) {
    const uint64_t known = start.size() < kHeaderBytes ? start.size() : file_bytes;
    call(path, Part::block, [&](Fault* fault) { return parse_header(start.data(), known, &header, fault); });
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
    std::vector<uint64_t> leading, rests;
    for (uint64_t i = 0; i <= n; ++i) {
      const uint64_t* const key = keys.data() + i * words();
      leading.push_back(key[0]);
      if (i) rests.insert(rests.end(), key + 1, key + words());
    }
    room = std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(n, 2) * kMaxEntries);
    if (given && count_of(*given) < room + 8) throw nb::value_error("fewer rows than decoding needs");
    TableView part = view;
    part.blocks = blocks.data();
    part.keys = leading.data() + 1;
    part.key_rests = rests.data();
    part.block_count = n;
    part.first_block = first;
    part.key_before = first ? leading[0] : 0;
    Buffer<uint64_t> out(given ? 0 : room * words() + 8);
    Buffer<uint32_t> counts(n);
    Decoded to{given ? given->data() : out.get(), room, counts.get()};
    call(path, Part::block, [&](Fault* fault) {
      const Status status = kernels(header.width).decode_blocks(part, {0, n}, &to, fault);
      if (fault->block != UINT64_MAX) fault->block += first;
      return status;
    });
    const nb::object values = given ? into[nb::slice(size_t{0}, static_cast<size_t>(to.written))] : out.array(to.written, words());
    return nb::make_tuple(values, counts.array(to.blocks));
  }
};

}  // namespace

void AnyTable::check_range(uint64_t first, uint64_t end) const {
  if (first > end || end > block_count) throw nb::index_error("block range outside the table");
}

nb::object AnyTable::scan(Rows queries, unsigned radius, uint64_t first, uint64_t end, std::optional<uint64_t> most, const Stop* stop) const {
  check_range(first, end);
  const Queries asked = checked(queries);
  SinkGuard guard;
  if (most) guard.sink.limit = *most;
  Stopper stopping = stopper(stop);
  std::optional<OrderedMatches> found;
  call(path, part(), [&](Fault* fault) {
    const Status status = compare({first, end}, asked, {radius, &stopping}, &guard.sink, fault);
    if (status == Status::out_of_memory && guard.sink.count >= guard.sink.limit) return Status::ok;
    if (status == Status::ok) found.emplace(guard.sink, width, words(), asked.count, 1, &stopping);
    return status;
  });
  return found ? nb::object(found->columns()) : nb::none();
}

nb::tuple AnyTable::nearest(Rows queries, unsigned radius, uint64_t limit, uint64_t first, uint64_t end, Rows absent, const Stop* stop) const {
  check_range(first, end);
  need_words(absent, words());
  need(limit > 0, "limit is at least 1");
  const Queries asked = checked(queries);
  SinkGuard guard;
  NearestGuard kept;
  kept.nearest.absent = absent.data();
  kept.nearest.absent_count = count_of(absent);
  Stopper stopping = stopper(stop);
  std::optional<OrderedMatches> found;
  call(path, part(), [&](Fault* fault) {
    Status status = Status::out_of_memory;
    if (start_nearest(&kept.nearest, words(), asked.count, limit, radius))
      status = compare({first, end}, asked, {radius, &stopping, &kept.nearest}, &guard.sink, fault);
    if (status == Status::ok && !hand_over(&kept.nearest, &guard.sink)) status = Status::out_of_memory;
    if (status == Status::out_of_memory) *fault = Fault{status};
    if (status == Status::ok) found.emplace(guard.sink, width, words(), asked.count, 1, &stopping);
    return status;
  });
  return found->columns(kept.nearest);
}

nb::tuple AnyTable::locate(Rows fingerprints) const {
  const Queries sought = checked(fingerprints);
  Buffer<uint64_t> blocks(sought.count);
  Buffer<uint32_t> ranks(sought.count);
  Stopper stopping = stopper(nullptr);
  call(path, part(), [&](Fault* fault) { return find(sought, blocks.get(), ranks.get(), &stopping, fault); });
  return nb::make_tuple(blocks.array(sought.count), ranks.array(sought.count));
}

nb::object AnyTable::locate_one(nb::handle fingerprint) const {
  const OneRow row(fingerprint, words());
  uint64_t block;
  uint32_t rank;
  Fault fault;
  check(find({row.words, 1}, &block, &rank, nullptr, &fault), fault, path, part());
  return block == UINT64_MAX ? nb::none() : nb::object(nb::make_tuple(block, rank));
}

// A place that the table does not have is the fault of the file that named it.
void AnyTable::check_read(Status status, const Fault& fault, const std::string& source) const {
  if (status == Status::bad_place) raise_fault(fault, source);
  check(status, fault, path, part());
}

nb::object AnyTable::entries_at(Words blocks, Counts ranks, const std::string& source) const {
  const size_t n = blocks.size();
  need(ranks.size() == n, kUnequal);
  Buffer<uint64_t> out(n * words());
  Fault fault;
  check_read(without_gil([&] { return read(blocks.data(), ranks.data(), n, out.get(), &fault); }), fault, source);
  return out.array(n, words());
}

nb::object AnyTable::entry_at(uint64_t block, uint32_t rank, const std::string& source) const {
  uint64_t entry[kMaxWords];
  Fault fault;
  check_read(read(&block, &rank, 1, entry, &fault), fault, source);
  return number_of(entry, words());
}

void AnyTable::copy_key(uint64_t block, uint64_t* out) const {
  if (block >= block_count) throw nb::index_error("no such block");
  Fault fault;
  check(read_key(block, out, &fault), fault, path, part());
}

nb::object AnyTable::keys_of(Words blocks) const {
  Buffer<uint64_t> out(blocks.size() * words());
  for (size_t i = 0; i < blocks.size(); ++i) copy_key(blocks.data()[i], out.get() + i * words());
  return out.array(blocks.size(), words());
}

nb::object AnyTable::key_of(uint64_t block) const {
  uint64_t key[kMaxWords];
  copy_key(block, key);
  return number_of(key, words());
}

Table::Table(Bytes data, std::string name) : AnyTable(data, std::move(name)) {
  need(reinterpret_cast<uintptr_t>(data.data()) % alignof(uint64_t) == 0, "a table begins at a multiple of 8 bytes");
  call(path, Part::block, [&](Fault* fault) { return parse_header(data.data(), data.size(), &header, fault); });
  width = header.width;
  block_count = header.block_count;
  set_digest = header.set_digest;
  const uint8_t* p = data.data();
  view = view_of(header);
  view.blocks = p + header.blocks_offset;
  view.keys = reinterpret_cast<const uint64_t*>(p + header.keys_offset);
  view.key_rests = view.keys + header.block_count;
  view.directory = reinterpret_cast<const uint64_t*>(p + header.directory_offset);
}

nb::tuple Table::decode(uint64_t first, uint64_t end, uint64_t room) const {
  check_range(first, end);
  room = std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(end - first, 2) * kMaxEntries);
  Buffer<uint64_t> out(room * words() + 8);
  Buffer<uint32_t> counts(end - first);
  Decoded to{out.get(), room, counts.get()};
  call(path, Part::block, [&](Fault* fault) { return kernels().decode_blocks(view, {first, end}, &to, fault); });
  return nb::make_tuple(out.array(to.written, words()), counts.array(to.blocks), first + to.blocks);
}

Queries Table::checked(const Rows& fingerprints) const {
  need_words(fingerprints, words());
  need(count_of(fingerprints) <= UINT32_MAX, "at most 2^32 - 1 fingerprints a call");
  return {fingerprints.data(), count_of(fingerprints)};
}

Status Table::compare(const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink, Fault* fault) const {
  return kernels().scan(view, range, queries, options, sink, fault);
}

Status Table::find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop, Fault* fault) const {
  return kernels().locate(view, fingerprints, blocks, ranks, stop, fault);
}

// Decodes a block once where successive places share it.
Status Table::read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out, Fault* fault) const {
  thread_local const std::unique_ptr<uint64_t[]> entries(new uint64_t[kBlockWords]);
  uint32_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t block = blocks[i];
    if (block >= block_count) return (*fault = Fault{Status::bad_place, block, block_count, block}).status;
    if (i == 0 || block != blocks[i - 1]) {
      Decoded to{entries.get(), kBlockWords / words(), &count};
      TRY(kernels().decode_blocks(view, {block, block + 1}, &to, fault));
    }
    if (ranks[i] >= count) return (*fault = Fault{Status::bad_place, block, count, ranks[i]}).status;
    std::copy_n(entries.get() + ranks[i] * words(), words(), out + i * words());
  }
  return Status::ok;
}

Status Table::read_key(uint64_t block, uint64_t* out, Fault*) const {
  out[0] = view.keys[block];
  std::copy_n(view.key_rests + block * (words() - 1), words() - 1, out + 1);
  return Status::ok;
}

namespace {

// What the header of a table says.
template <class Bound>
void bind_table_header(Bound& bound) {
  using H = TableHeader;
  bind_header<H>(bound);
  bind_fields(bound, "prefix_bits", &H::prefix_bits, "flips", &H::flips, "block_bytes", &H::block_bytes, "fingerprint_count",
              &H::fingerprint_count, "block_count", &H::block_count, "keys_offset", &H::keys_offset, "directory_offset",
              &H::directory_offset);
  bound.def_prop_ro("code_bits", [](const typename Bound::Type& t) { return bytes_of(t.header.code_bits, kSymbols); });
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<AnyTable>(m, "AnyTable")
      .def_ro("path", &AnyTable::path)
      .def_ro("width", &AnyTable::width)
      .def_ro("block_count", &AnyTable::block_count)
      .def("decode", &AnyTable::decode, "first_block"_a, "end_block"_a, "room"_a)
      .def("scan", &AnyTable::scan, "queries"_array, "radius"_a, "first_block"_a, "end_block"_a, "most"_a = nb::none(), optional_stop())
      .def("nearest", &AnyTable::nearest, "queries"_array, "radius"_a, "limit"_a, "first_block"_a, "end_block"_a, "absent"_array,
           optional_stop())
      .def("locate", &AnyTable::locate, "fingerprints"_array)
      .def("locate_one", &AnyTable::locate_one, "fingerprint"_a)
      .def("entries_at", &AnyTable::entries_at, "blocks"_array, "ranks"_array, "source"_a)
      .def("entry_at", &AnyTable::entry_at, "block"_a, "rank"_a, "source"_a)
      .def("key_of", &AnyTable::key_of, "block"_a)
      .def("keys_of", &AnyTable::keys_of, "blocks"_array);
  nb::class_<Table, AnyTable> table(m, "Table");
  table.def(nb::init<Bytes, std::string>(), "data"_array, "path"_a);
  bind_table_header(table);
  nb::class_<TableParts> parts(m, "TableParts");
  parts.def(nb::init<Bytes, uint64_t, std::string>(), "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &TableParts::decode, "blocks"_a, "keys"_array, "first"_a, "room"_a, "into"_a = nb::none());
  bind_table_header(parts);
  nb::class_<Stop>(m, "Stop").def(nb::init<>()).def("set", &Stop::set).def("is_set", &Stop::is_set);
}

}  // namespace fpstore
