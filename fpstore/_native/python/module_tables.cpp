// Tables: mapped whole, or read in parts.
#include "python/tables.hpp"

namespace fpstore {
namespace {

// (values, entry counts) of successive blocks, while they fit into room entries. Values are put
// into an array, if there is one, with room for 8 more: those that are returned are its front.
nb::tuple decode_parts(const TableParts& parts, Bytes blocks, Rows keys, uint64_t first,
                       uint64_t room, nb::object into) {
  const unsigned words = parts.words();
  std::optional<MutableRows> given;
  if (!into.is_none()) given = nb::cast<MutableRows>(into, false);
  need_words(keys, words);
  if (given) need_words(*given, words);
  const uint64_t n = parts.check_blocks(span_of(blocks), first, count_of(keys));
  room = block_room(n, room);
  need(!given || count_of(*given) >= room + 8, "fewer rows than decoding needs");
  Buffer<uint64_t> out(given ? 0 : room * words + 8);
  Buffer<uint32_t> counts(n);
  Decoded to{given ? given->data() : out.get(), room, counts.get()};
  call(parts.file, [&](Fault* fault) {
    return parts.decode(blocks.data(), keys.data(), {first, first + n}, &to, fault);
  });
  const nb::object values = given ? into[nb::slice(size_t{0}, static_cast<size_t>(to.written))]
                                  : out.array(to.written, words);
  return nb::make_tuple(values, counts.array(to.blocks));
}

// (values, entry counts, next block): decodes blocks from the first on while they fit into room
// entries, one at least.
nb::tuple decode(const AnyTable& t, uint64_t first, uint64_t end, uint64_t room) {
  t.check_range({first, end});
  room = t.decode_room({first, end}, room);
  Buffer<uint64_t> out(room * t.value_words() + 8);
  Buffer<uint32_t> counts(end - first);
  Decoded to{out.get(), room, counts.get()};
  call(t.file, [&](Fault* fault) { return t.decode({first, end}, &to, fault); });
  return nb::make_tuple(out.array(to.written, t.value_words()), counts.array(to.blocks),
                        first + to.blocks);
}

nb::object scan(const AnyTable& t, Rows rows, unsigned radius, uint64_t first, uint64_t end,
                std::optional<uint64_t> most, const Stop* stop) {
  t.check_range({first, end});
  const Queries queries = queries_of(rows, t.width);
  std::optional<OrderedMatches> found =
      matches_of(t.file, t.width, t.words(), queries.count, 1, most, stop,
                 [&](Sink* sink, Stopper* stopping, Fault* fault) {
                   return t.compare({first, end}, queries, {radius, stopping}, sink, fault);
                 });
  return found ? nb::object(found->columns()) : nb::none();
}

// The nearest entries of each query within the radius, without the absent ones, which ascend; and
// whether there are others.
nb::tuple nearest(const AnyTable& t, Rows rows, unsigned radius, uint64_t limit, uint64_t first,
                  uint64_t end, Rows absent, const Stop* stop) {
  t.check_range({first, end});
  need_words(absent, t.words());
  need(limit > 0, "limit is at least 1");
  const Queries queries = queries_of(rows, t.width);
  NearestGuard kept;
  kept.nearest.absent = absent.data();
  kept.nearest.absent_count = count_of(absent);
  std::optional<OrderedMatches> found =
      matches_of(t.file, t.width, t.words(), queries.count, 1, std::nullopt, stop,
                 [&](Sink* sink, Stopper* stopping, Fault* fault) {
                   return nearest_entries(t, {first, end}, queries, limit, {radius, stopping},
                                          &kept.nearest, sink, fault);
                 });
  return found->columns(kept.nearest);
}

// (blocks, ranks), a block being 2^64 - 1 where there is none.
nb::tuple locate(const AnyTable& t, Rows fingerprints) {
  const Queries sought = queries_of(fingerprints, t.width);
  Buffer<uint64_t> blocks(sought.count);
  Buffer<uint32_t> ranks(sought.count);
  Stopper stopping = stopper(nullptr);
  call(t.file,
       [&](Fault* fault) { return t.find(sought, blocks.get(), ranks.get(), &stopping, fault); });
  return nb::make_tuple(blocks.array(sought.count), ranks.array(sought.count));
}

nb::object locate_one(const AnyTable& t, nb::handle fingerprint) {
  const OneRow row(fingerprint, t.words());
  uint64_t block;
  uint32_t rank;
  Fault fault;
  check(t.find({row.words, 1}, &block, &rank, nullptr, &fault), fault, t.file);
  return block == UINT64_MAX ? nb::none() : nb::object(nb::make_tuple(block, rank));
}

// A place that the table does not have is the fault of the file that names it.
File source_of(const AnyTable& t, const std::string& source, const Fault& fault) {
  return {fault.status == Status::bad_place ? source : t.file.path, t.file.part};
}

// Entries, by blocks and ranks that the file `source` names.
nb::object entries_at(const AnyTable& t, Words blocks, Counts ranks, const std::string& source) {
  const size_t n = blocks.size();
  need(ranks.size() == n, kUnequal);
  Buffer<uint64_t> out(n * t.words());
  const auto file = [&](const Fault& fault) { return source_of(t, source, fault); };
  call(file,
       [&](Fault* fault) { return t.read(blocks.data(), ranks.data(), n, out.get(), fault); });
  return out.array(n, t.words());
}

nb::object entry_at(const AnyTable& t, uint64_t block, uint32_t rank, const std::string& source) {
  uint64_t entry[kMaxWords];
  Fault fault;
  const Status status = t.read(&block, &rank, 1, entry, &fault);
  check(status, fault, source_of(t, source, fault));
  return number_of(entry, t.words());
}

void copy_key(const AnyTable& t, uint64_t block, uint64_t* out) {
  if (block >= t.block_count) throw nb::index_error("no such block");
  Fault fault;
  check(t.read_key(block, out, &fault), fault, t.file);
}

nb::object keys_of(const AnyTable& t, Words blocks) {
  Buffer<uint64_t> out(blocks.size() * t.words());
  for (size_t i = 0; i < blocks.size(); ++i)
    copy_key(t, blocks.data()[i], out.get() + i * t.words());
  return out.array(blocks.size(), t.words());
}

nb::object key_of(const AnyTable& t, uint64_t block) {
  uint64_t key[kMaxWords];
  copy_key(t, block, key);
  return number_of(key, t.words());
}

template <class Bound>
void bind_table_header(Bound& bound) {
  using H = TableHeader;
  bind_header<H>(bound);
  bind_fields(bound, "prefix_bits", &H::prefix_bits, "flips", &H::flips, "block_bytes",
              &H::block_bytes, "fingerprint_count", &H::fingerprint_count, "block_count",
              &H::block_count, "keys_offset", &H::keys_offset, "directory_offset",
              &H::directory_offset);
  bound.def_prop_ro("code_bits", [](const typename Bound::Type& t) {
    return bytes_of(t.header.code_bits, kSymbols);
  });
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<AnyTable>(m, "AnyTable")
      .def_prop_ro("path", [](const AnyTable& t) { return t.file.path; })
      .def_ro("width", &AnyTable::width)
      .def_ro("block_count", &AnyTable::block_count)
      .def("decode", &decode, "first_block"_a, "end_block"_a, "room"_a)
      .def("scan", &scan, "queries"_array, "radius"_a, "first_block"_a, "end_block"_a,
           "most"_a = nb::none(), optional_stop())
      .def("nearest", &nearest, "queries"_array, "radius"_a, "limit"_a, "first_block"_a,
           "end_block"_a, "absent"_array, optional_stop())
      .def("locate", &locate, "fingerprints"_array)
      .def("locate_one", &locate_one, "fingerprint"_a)
      .def("entries_at", &entries_at, "blocks"_array, "ranks"_array, "source"_a)
      .def("entry_at", &entry_at, "block"_a, "rank"_a, "source"_a)
      .def("key_of", &key_of, "block"_a)
      .def("keys_of", &keys_of, "blocks"_array);
  nb::class_<Table, AnyTable> table(m, "Table");
  bind_open(table);
  bind_table_header(table);
  nb::class_<TableParts> parts(m, "TableParts");
  parts
      .def(
          "__init__",
          [](TableParts* self, Bytes start, uint64_t file_bytes, std::string path) {
            new (self) TableParts(span_of(start), file_bytes, std::move(path));
          },
          "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &decode_parts, "blocks"_a, "keys"_array, "first"_a, "room"_a,
           "into"_a = nb::none());
  bind_table_header(parts);
  nb::class_<Stop>(m, "Stop").def(nb::init<>()).def("set", &Stop::set).def("is_set", &Stop::is_set);
}

}  // namespace fpstore
