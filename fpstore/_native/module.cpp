// The only file of the kernel that knows Python: arrays in, one call without the GIL, arrays or an exception out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "header.hpp"
#include "idpack.hpp"
#include "kernels.hpp"
#include "results.hpp"
#include "simhash.hpp"
#include "xxh64.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fpstore {
namespace {

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableWords = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An uninitialised buffer that becomes a NumPy array without a copy.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : data_(new T[n ? n : 1]) {}
  T* get() { return data_.get(); }
  nb::object array(size_t n) {
    T* p = data_.release();
    nb::capsule owner(p, [](void* q) noexcept { delete[] static_cast<T*>(q); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(p, {n}, owner));
  }

 private:
  std::unique_ptr<T[]> data_;
};

struct SinkGuard {
  Sink sink;
  ~SinkGuard() { release(&sink); }
};

[[noreturn]] void raise(const char* type, const std::string& message, nb::dict facts) {
  nb::object error = nb::module_::import_("fpstore.errors").attr(type)(message, **facts);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

[[noreturn]] void raise_fault(const Fault& fault, const std::string& path) {
  nb::dict facts;
  facts["path"] = path;
  facts["expected"] = fault.expected;
  facts["got"] = fault.got;
  std::string where = path;
  if (fault.block != UINT64_MAX) {
    facts["block"] = fault.block;
    where += ", block " + std::to_string(fault.block);
  }
  const std::string numbers = " (expected " + std::to_string(fault.expected) + ", got " + std::to_string(fault.got) + ")";
  switch (fault.status) {
    case Status::out_of_memory:
      raise("MemoryLimitError", "out of memory while collecting matches: probe fewer queries at a time", facts);
    case Status::unknown_version:
    case Status::unknown_flags:
    case Status::unknown_width:
      raise("FormatVersionError", where + ": " + describe(fault.status) + numbers + ": a newer fpstore wrote it; upgrade to read it",
            facts);
    default:
      raise("CorruptStoreError", where + ": " + describe(fault.status) + numbers, facts);
  }
}

void check(Status status, const Fault& fault, const std::string& path) {
  if (status != Status::ok) raise_fault(fault, path);
}

Permutation permutation_of(const Bytes& source, bool inverse) {
  if (source.size() != 64) throw nb::value_error("a permutation has 64 entries");
  uint64_t seen = 0;
  for (unsigned i = 0; i < 64; ++i) seen |= uint64_t{1} << (source.data()[i] & 63);
  if (seen != ~uint64_t{0}) throw nb::value_error("not a permutation of 0..63");
  Permutation forward, backward;
  make_permutation(source.data(), &forward, &backward);
  return inverse ? backward : forward;
}

struct Table {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  TableHeader header;
  TableView view;

  Table(Bytes data, std::string name) : owner(nb::cast(data)), path(std::move(name)) {
    Fault fault;
    check(parse_header(data.data(), data.size(), &header, &fault), fault, path);
    const uint8_t* p = data.data();
    view.blocks = p + header.blocks_offset;
    view.keys = reinterpret_cast<const uint64_t*>(p + header.keys_offset);
    view.directory = reinterpret_cast<const uint64_t*>(p + header.directory_offset);
    view.block_count = header.block_count;
    view.fingerprint_count = header.fingerprint_count;
    view.seed = block_seed(header);
    view.block_bytes = header.block_bytes;
    view.directory_bits = header.directory_bits;
    make_permutation(header.permutation, &view.forward, &view.inverse);
    make_decode_table(header.code_bits, &view.code);
  }

  void check_range(uint64_t b0, uint64_t b1) const {
    if (b0 > b1 || b1 > view.block_count) throw nb::index_error("block range outside the table");
  }

  // (values, entry counts, next block): decodes blocks from b0 on while they fit into room entries.
  nb::tuple decode(uint64_t b0, uint64_t b1, uint64_t room) const {
    check_range(b0, b1);
    if (room < 2 * kMaxEntries) room = 2 * kMaxEntries;
    Buffer<uint64_t> out(room + 8);
    Buffer<uint32_t> counts(b1 - b0);
    uint64_t written, taken;
    Fault fault;
    Status status;
    {
      nb::gil_scoped_release release;
      status = kernels().decode_blocks(view, b0, b1, out.get(), room, &written, &taken, counts.get(), &fault);
    }
    check(status, fault, path);
    return nb::make_tuple(out.array(written), counts.array(taken), b0 + taken);
  }

  nb::tuple scan(Words queries, unsigned radius, uint64_t b0, uint64_t b1) const {
    check_range(b0, b1);
    SinkGuard guard;
    Fault fault;
    Status status;
    {
      nb::gil_scoped_release release;
      status = kernels().scan(view, queries.data(), queries.size(), radius, b0, b1, &guard.sink, &fault);
    }
    check(status, fault, path);
    return finish(guard.sink, queries.size());
  }

  nb::tuple locate(Words fingerprints) const {
    const size_t n = fingerprints.size();
    Buffer<uint64_t> blocks(n);
    Buffer<uint32_t> ranks(n);
    Fault fault;
    Status status;
    {
      nb::gil_scoped_release release;
      status = kernels().locate(view, fingerprints.data(), n, blocks.get(), ranks.get(), &fault);
    }
    check(status, fault, path);
    return nb::make_tuple(blocks.array(n), ranks.array(n));
  }

  // (block, rank) or None.
  nb::object locate_one(uint64_t fingerprint) const {
    uint64_t block;
    uint32_t rank;
    Fault fault;
    check(kernels().locate(view, &fingerprint, 1, &block, &rank, &fault), fault, path);
    if (block == UINT64_MAX) return nb::none();
    return nb::make_tuple(block, rank);
  }

  // Checks that keys and directory agree: order, and each slot the number of keys below its prefix.
  void check_index() const {
    for (uint64_t b = 1; b < view.block_count; ++b)
      if (view.keys[b] <= view.keys[b - 1]) raise_fault(Fault{Status::bad_key, b, view.keys[b - 1], view.keys[b]}, path);
    const uint64_t slots = uint64_t{1} << view.directory_bits;
    uint64_t b = 0;
    for (uint64_t slot = 0; slot <= slots; ++slot) {
      if (slot == slots) b = view.block_count;
      else if (view.directory_bits)
        while (b < view.block_count && view.keys[b] < slot << (64 - view.directory_bits)) ++b;
      if (view.directory[slot] != b) raise_fault(Fault{Status::bad_directory, UINT64_MAX, b, view.directory[slot]}, path);
    }
  }

  static nb::tuple finish(const Sink& sink, size_t query_count) {
    Buffer<int64_t> lims(query_count + 1);
    Buffer<uint64_t> fingerprints(sink.count);
    Buffer<uint8_t> distances(sink.count);
    bool fine;
    {
      nb::gil_scoped_release release;
      fine = order_matches(sink, query_count, lims.get(), fingerprints.get(), distances.get());
    }
    if (!fine) raise_fault(Fault{Status::out_of_memory}, "");
    return nb::make_tuple(lims.array(query_count + 1), fingerprints.array(sink.count), distances.array(sink.count));
  }
};

// The tables of a design with, for one query radius, what to look up in each.
struct Prober {
  std::vector<nb::object> owners;
  std::vector<const Table*> tables;
  std::vector<std::vector<uint64_t>> variants;
  std::vector<TableProbe> probes;

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

  void run(const uint64_t* queries, size_t n, unsigned radius, Sink* sink, ProbeCounters* counters) const {
    unsigned table = 0;
    Fault fault;
    Status status;
    {
      nb::gil_scoped_release release;
      status = kernels().probe(probes.data(), static_cast<unsigned>(probes.size()), queries, n, radius, sink, counters, &table,
                               &fault);
    }
    if (status != Status::ok) raise_fault(fault, tables[table]->path);
  }

  // (lims, fingerprints, distances, blocks read, candidates)
  nb::tuple probe(Words queries, unsigned radius) const {
    if (queries.size() > UINT32_MAX) throw nb::value_error("at most 2^32 - 1 queries a call");
    SinkGuard guard;
    ProbeCounters counters;
    run(queries.data(), queries.size(), radius, &guard.sink, &counters);
    nb::tuple columns = Table::finish(guard.sink, queries.size());
    return nb::make_tuple(columns[0], columns[1], columns[2], counters.blocks, counters.candidates);
  }

  // [(fingerprint, distance, block, rank), ...] by distance, fingerprint; block and rank are places in the identity table.
  nb::list probe_one(uint64_t query, unsigned radius, const Table& identity) const {
    SinkGuard guard;
    ProbeCounters counters;
    run(&query, 1, radius, &guard.sink, &counters);
    const size_t n = guard.sink.count;
    std::vector<int64_t> lims(2);
    std::vector<uint64_t> fingerprints(n), blocks(n);
    std::vector<uint8_t> distances(n);
    std::vector<uint32_t> ranks(n);
    if (!order_matches(guard.sink, 1, lims.data(), fingerprints.data(), distances.data()))
      raise_fault(Fault{Status::out_of_memory}, "");
    Fault fault;
    check(kernels().locate(identity.view, fingerprints.data(), n, blocks.data(), ranks.data(), &fault), fault, identity.path);
    nb::list out;
    for (size_t i = 0; i < n; ++i) {
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

  // (block bytes, keys, entry counts) of the blocks that were completed.
  nb::tuple feed(Words keys) {
    // An entry takes at most 16 + 63 bits, so a closed block holds at least this many.
    const size_t least = 1 + (state->block_bytes - kBlockHeaderBytes) * 8 / (kMaxCodeBits + 63);
    const size_t most = keys.size() / least + 2;
    Buffer<uint8_t> blocks(most * state->block_bytes + kOverread);
    Buffer<uint64_t> block_keys(most);
    Buffer<uint32_t> counts(most);
    size_t bad = 0, n;
    {
      nb::gil_scoped_release release;
      n = kernels().encode(state.get(), keys.data(), keys.size(), blocks.get(), block_keys.get(), counts.get(), &bad);
    }
    if (n == SIZE_MAX) {
      const uint64_t got = keys.data()[bad];
      nb::dict facts;
      facts["expected"] = state->count ? state->last : state->previous_key;
      facts["got"] = got;
      raise("InputError", "keys out of order at " + std::to_string(entries + bad) + ": each must be greater than the one before",
            facts);
    }
    entries += keys.size();
    return nb::make_tuple(blocks.array(n * state->block_bytes), block_keys.array(n), counts.array(n));
  }

  nb::tuple finish() {
    Buffer<uint8_t> block(state->block_bytes + kOverread);
    Buffer<uint64_t> key(1);
    Buffer<uint32_t> count(1);
    const size_t n = kernels().encode_finish(state.get(), block.get(), key.get(), count.get());
    return nb::make_tuple(block.array(n * state->block_bytes), key.array(n), count.array(n));
  }
};

nb::object permute(Words keys, Bytes permutation, bool inverse) {
  const Permutation p = permutation_of(permutation, inverse);
  Buffer<uint64_t> out(keys.size());
  {
    nb::gil_scoped_release release;
    kernels().permute(p, keys.data(), out.get(), keys.size());
  }
  return out.array(keys.size());
}

// Writes the permuted keys that lie in [low, high] to out, which must be as long as keys; returns how many.
size_t permute_select(Words keys, Bytes permutation, uint64_t low, uint64_t high, MutableWords out) {
  const Permutation p = permutation_of(permutation, false);
  if (out.size() < keys.size()) throw nb::value_error("out is too short");
  nb::gil_scoped_release release;
  return kernels().permute_select(p, keys.data(), out.data(), keys.size(), low, high);
}

// Permutes keys that are in ascending order and sorts them by their leading bits, stable, into out.
void permute_sort(Words keys, Bytes permutation, MutableWords out, MutableWords scratch, unsigned bits) {
  const Permutation p = permutation_of(permutation, false);
  if (out.size() < keys.size() || scratch.size() < keys.size()) throw nb::value_error("out or scratch is too short");
  if (bits < 1 || bits > 64) throw nb::value_error("bits is 1 to 64");
  nb::gil_scoped_release release;
  kernels().permute_sort(p, keys.data(), out.data(), scratch.data(), keys.size(), bits);
}

void sort_keys(MutableWords keys, MutableWords scratch, unsigned bits) {
  if (scratch.size() < keys.size()) throw nb::value_error("scratch is too short");
  if (bits < 1 || bits > 64) throw nb::value_error("bits is 1 to 64");
  nb::gil_scoped_release release;
  kernels().sort_keys(keys.data(), scratch.data(), keys.size(), bits);
}

void sort_pairs(MutableWords pairs, MutableWords scratch) {
  if (pairs.size() % 2 || scratch.size() < pairs.size()) throw nb::value_error("scratch is too short");
  nb::gil_scoped_release release;
  kernels().sort_pairs(pairs.data(), scratch.data(), pairs.size() / 2);
}

// Splits sorted pairs without further memory: the distinct keys go to the first half of out, their ids to the second, and how
// many ids each has to the front of pairs. Returns (number of keys, number of ids).
nb::tuple group(MutableWords pairs, MutableWords out) {
  const size_t n = pairs.size() / 2;
  if (pairs.size() % 2 || out.size() < pairs.size()) throw nb::value_error("out is too short");
  uint64_t groups, ids;
  {
    nb::gil_scoped_release release;
    groups = group_pairs(pairs.data(), n, out.data(), out.data() + n, &ids);
  }
  return nb::make_tuple(groups, ids);
}

// Adds the histogram of h into counts (64 places); returns the index of the first key out of order, or len(keys).
size_t histogram(Words keys, MutableWords counts) {
  if (counts.size() != kSymbols) throw nb::value_error("counts has 64 places");
  nb::gil_scoped_release release;
  return kernels().histogram(keys.data(), keys.size(), counts.data());
}

uint64_t digest(Words keys, Bytes permutation) {
  const Permutation inverse = permutation_of(permutation, true);
  nb::gil_scoped_release release;
  return kernels().digest(inverse, keys.data(), keys.size());
}

TableHeader header_of(Bytes permutation, Bytes code_bits, uint64_t set_digest) {
  if (permutation.size() != 64 || code_bits.size() != kSymbols) throw nb::value_error("64 entries are wanted");
  TableHeader h;
  memcpy(h.permutation, permutation.data(), 64);
  memcpy(h.code_bits, code_bits.data(), 64);
  h.set_digest = set_digest;
  return h;
}

nb::bytes make_header(Bytes permutation, Bytes code_bits, uint64_t set_digest, uint64_t fingerprint_count, uint64_t block_count,
                      uint32_t block_bytes, unsigned table, unsigned table_count, unsigned prefix_bits, unsigned flips) {
  TableHeader h = header_of(permutation, code_bits, set_digest);
  h.fingerprint_count = fingerprint_count;
  h.block_count = block_count;
  h.block_bytes = block_bytes;
  h.table = static_cast<uint16_t>(table);
  h.table_count = static_cast<uint16_t>(table_count);
  h.prefix_bits = static_cast<uint16_t>(prefix_bits);
  h.flips = static_cast<uint16_t>(flips);
  std::vector<uint8_t> out(kHeaderBytes);
  write_header(&h, out.data());
  return nb::bytes(reinterpret_cast<const char*>(out.data()), out.size());
}

// The directory of a sorted key index: slot x holds the number of keys below x in their leading bits.
nb::object make_directory(Words keys) {
  const unsigned bits = directory_bits_for(keys.size());
  const uint64_t slots = uint64_t{1} << bits;
  Buffer<uint64_t> out(slots + 1);
  uint64_t b = 0;
  for (uint64_t slot = 0; slot < slots; ++slot) {
    if (bits)
      while (b < keys.size() && keys.data()[b] < slot << (64 - bits)) ++b;
    out.get()[slot] = b;
  }
  out.get()[slots] = keys.size();
  return out.array(slots + 1);
}

// Id records of successive blocks with the given entry counts: (bytes, offsets). seed is that of the first block.
nb::tuple pack_ids(Words ids, Words lims, Counts block_counts, uint64_t seed) {
  uint64_t fingerprints = 0;
  for (size_t b = 0; b < block_counts.size(); ++b) fingerprints += block_counts.data()[b];
  if (lims.size() != fingerprints + 1 || lims.data()[fingerprints] > ids.size())
    throw nb::value_error("lims, ids and block counts disagree");
  for (uint64_t i = 0; i < fingerprints; ++i)
    if (lims.data()[i] >= lims.data()[i + 1]) throw nb::value_error("every fingerprint needs an id");
  Buffer<uint64_t> offsets(block_counts.size() + 1);
  uint64_t* const o = offsets.get();
  std::unique_ptr<uint8_t[]> bytes;
  {
    nb::gil_scoped_release release;
    o[0] = 0;
    uint64_t first = 0;
    for (size_t b = 0; b < block_counts.size(); first += block_counts.data()[b++])
      o[b + 1] = o[b] + record_bytes(ids.data(), lims.data() + first, block_counts.data()[b]);
    bytes.reset(new uint8_t[o[block_counts.size()] + 1]);
    first = 0;
    for (size_t b = 0; b < block_counts.size(); first += block_counts.data()[b++])
      pack_record(ids.data(), lims.data() + first, block_counts.data()[b], seed + b, bytes.get() + o[b]);
  }
  nb::bytes blob(reinterpret_cast<const char*>(bytes.get()), o[block_counts.size()]);
  return nb::make_tuple(blob, offsets.array(block_counts.size() + 1));
}

IdRecord record_of(const nb::bytes& data, uint64_t seed, const std::string& path) {
  IdRecord record;
  Fault fault;
  check(open_record(reinterpret_cast<const uint8_t*>(data.c_str()), data.size(), seed, &record, &fault), fault, path);
  return record;
}

// The ids of one rank of a record.
nb::list unpack_rank(nb::bytes data, uint64_t seed, uint32_t rank, const std::string& path) {
  const IdRecord record = record_of(data, seed, path);
  if (rank >= record.count) raise_fault(Fault{Status::bad_record, UINT64_MAX, rank, record.count}, path);
  uint64_t first;
  const uint64_t n = ids_of_rank(record, rank, &first);
  nb::list out;
  for (uint64_t i = 0; i < n; ++i) out.append(id_at(record, first + i));
  return out;
}

// (counts, ids) of a whole record.
nb::tuple unpack_record(nb::bytes data, uint64_t seed, const std::string& path) {
  const IdRecord record = record_of(data, seed, path);
  Buffer<uint64_t> counts(record.count), ids(record.total);
  for (uint32_t i = 0; i < record.count; ++i) counts.get()[i] = count_at(record, i);
  for (uint64_t i = 0; i < record.total; ++i) ids.get()[i] = id_at(record, i);
  return nb::make_tuple(counts.array(record.count), ids.array(record.total));
}

// (lims, ids) of many places: ids of rank ranks[i] in records[record[i]], which is that of block blocks[record[i]].
nb::tuple gather_ids(nb::list records, Words blocks, Words record, Counts ranks, uint64_t seed, const std::string& path) {
  const size_t n = record.size();
  if (ranks.size() != n || blocks.size() != nb::len(records)) throw nb::value_error("columns of different lengths");
  std::vector<IdRecord> opened(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    opened[i] = record_of(nb::cast<nb::bytes>(records[i]), seed + blocks.data()[i], path);  // records keeps the bytes alive
  Buffer<int64_t> lims(n + 1);
  int64_t* const l = lims.get();
  std::vector<uint64_t> firsts(n);
  l[0] = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t place = record.data()[i];
    if (place >= opened.size()) throw nb::index_error("no such record");
    const uint32_t rank = ranks.data()[i];
    if (rank >= opened[place].count) raise_fault(Fault{Status::bad_record, blocks.data()[place], rank, opened[place].count}, path);
    l[i + 1] = l[i] + static_cast<int64_t>(ids_of_rank(opened[place], rank, &firsts[i]));
  }
  const size_t total = static_cast<size_t>(l[n]);
  Buffer<uint64_t> ids(total);
  {
    nb::gil_scoped_release release;
    for (size_t i = 0; i < n; ++i)
      for (int64_t j = l[i]; j < l[i + 1]; ++j)
        ids.get()[j] = id_at(opened[record.data()[i]], firsts[i] + static_cast<uint64_t>(j - l[i]));
  }
  return nb::make_tuple(lims.array(n + 1), ids.array(total));
}

// Fingerprints of normalised texts, given as one UTF-8 buffer and len(texts) + 1 offsets.
nb::object simhash(nb::bytes text, Words offsets, bool words, unsigned length, bool distinct, uint64_t seed) {
  const size_t n = offsets.size() ? offsets.size() - 1 : 0;
  for (size_t i = 0; i < n; ++i)
    if (offsets.data()[i] > offsets.data()[i + 1]) throw nb::value_error("offsets descend");
  if (n && offsets.data()[n] > text.size()) throw nb::value_error("offsets run past the text");
  if (length < 1) throw nb::value_error("shingle length is at least 1");
  Buffer<uint64_t> out(n);
  bool fine;
  {
    nb::gil_scoped_release release;
    fine = simhash_texts(reinterpret_cast<const uint8_t*>(text.c_str()), offsets.data(), n,
                         SimhashOptions{words, length, distinct, seed}, out.get());
  }
  if (!fine) raise("MemoryLimitError", "out of memory while hashing texts: hash shorter ones", nb::dict());
  return out.array(n);
}

std::vector<std::string> available() {
  std::vector<std::string> names;
  for (const char* name : {"scalar", "avx2", "avx512"})
    if (kernels_named(name)) names.emplace_back(name);
  return names;
}

}  // namespace
}  // namespace fpstore

NB_MODULE(_kernel, m) {
  using namespace fpstore;
  m.attr("FORMAT_VERSION") = kFormatVersion;
  m.attr("HEADER_BYTES") = kHeaderBytes;
  m.attr("MAX_CODE_BITS") = kMaxCodeBits;
  m.attr("MAX_ENTRIES") = kMaxEntries;
  m.def("isa", [] { return std::string(kernels().name); });
  m.def("available_isas", &available);
  m.def("select_isa", [](const std::string& name) {
    if (!select_kernels(name.c_str())) throw nb::value_error("this machine has no such instruction set");
  }, "name"_a);
  m.def("xxh64", [](nb::bytes data, uint64_t seed) {
    return xxh64(reinterpret_cast<const uint8_t*>(data.c_str()), data.size(), seed);
  }, "data"_a, "seed"_a = 0);
  m.def("permute", &permute, nb::arg("keys").noconvert(), "permutation"_a, "inverse"_a = false);
  m.def("permute_select", &permute_select, nb::arg("keys").noconvert(), "permutation"_a, "low"_a, "high"_a, nb::arg("out").noconvert());
  m.def("permute_sort", &permute_sort, nb::arg("keys").noconvert(), "permutation"_a, nb::arg("out").noconvert(),
        nb::arg("scratch").noconvert(), "bits"_a);
  m.def("sort_keys", &sort_keys, nb::arg("keys").noconvert(), nb::arg("scratch").noconvert(), "bits"_a = 64);
  m.def("sort_pairs", &sort_pairs, nb::arg("pairs").noconvert(), nb::arg("scratch").noconvert());
  m.def("group_pairs", &group, nb::arg("pairs").noconvert(), nb::arg("out").noconvert());
  m.def("histogram", &histogram, nb::arg("keys").noconvert(), nb::arg("counts").noconvert());
  m.def("digest", &digest, nb::arg("keys").noconvert(), "permutation"_a);
  m.def("make_header", &make_header, "permutation"_a, "code_bits"_a, "set_digest"_a, "fingerprint_count"_a, "block_count"_a,
        "block_bytes"_a, "table"_a, "table_count"_a, "prefix_bits"_a, "flips"_a);
  m.def("block_seed", [](Bytes permutation, Bytes code_bits, uint64_t set_digest) {
    return block_seed(header_of(permutation, code_bits, set_digest));
  }, "permutation"_a, "code_bits"_a, "set_digest"_a);
  m.def("make_directory", &make_directory, nb::arg("keys").noconvert());
  m.def("pack_ids", &pack_ids, nb::arg("ids").noconvert(), nb::arg("lims").noconvert(), nb::arg("block_counts").noconvert(), "seed"_a);
  m.def("unpack_rank", &unpack_rank, "record"_a, "seed"_a, "rank"_a, "path"_a);
  m.def("unpack_record", &unpack_record, "record"_a, "seed"_a, "path"_a);
  m.def("gather_ids", &gather_ids, "records"_a, nb::arg("blocks").noconvert(), nb::arg("record").noconvert(),
        nb::arg("ranks").noconvert(), "seed"_a, "path"_a);
  m.def("simhash", &simhash, "text"_a, nb::arg("offsets").noconvert(), "words"_a, "length"_a, "distinct"_a, "seed"_a);
  m.def("simhash_weighted", [](Words hashes, Doubles weights) {
    if (hashes.size() != weights.size()) throw nb::value_error("one weight a hash");
    return simhash_weighted(hashes.data(), weights.data(), hashes.size());
  }, nb::arg("hashes").noconvert(), nb::arg("weights").noconvert());

  nb::class_<Table>(m, "Table")
      .def(nb::init<Bytes, std::string>(), nb::arg("data").noconvert(), "path"_a)
      .def_ro("path", &Table::path)
      .def_prop_ro("version", [](const Table& t) { return t.header.version; })
      .def_prop_ro("table", [](const Table& t) { return t.header.table; })
      .def_prop_ro("table_count", [](const Table& t) { return t.header.table_count; })
      .def_prop_ro("prefix_bits", [](const Table& t) { return t.header.prefix_bits; })
      .def_prop_ro("flips", [](const Table& t) { return t.header.flips; })
      .def_prop_ro("block_bytes", [](const Table& t) { return t.header.block_bytes; })
      .def_prop_ro("fingerprint_count", [](const Table& t) { return t.header.fingerprint_count; })
      .def_prop_ro("block_count", [](const Table& t) { return t.header.block_count; })
      .def_prop_ro("keys_offset", [](const Table& t) { return t.header.keys_offset; })
      .def_prop_ro("directory_offset", [](const Table& t) { return t.header.directory_offset; })
      .def_prop_ro("file_bytes", [](const Table& t) { return t.header.file_bytes; })
      .def_prop_ro("set_digest", [](const Table& t) { return t.header.set_digest; })
      .def_prop_ro("permutation", [](const Table& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.permutation), 64); })
      .def_prop_ro("code_bits", [](const Table& t) { return nb::bytes(reinterpret_cast<const char*>(t.header.code_bits), 64); })
      .def("decode", &Table::decode, "first_block"_a, "end_block"_a, "room"_a)
      .def("scan", &Table::scan, nb::arg("queries").noconvert(), "radius"_a, "first_block"_a, "end_block"_a)
      .def("locate", &Table::locate, nb::arg("fingerprints").noconvert())
      .def("locate_one", &Table::locate_one, "fingerprint"_a)
      .def("check_index", &Table::check_index);

  nb::class_<Prober>(m, "Prober")
      .def(nb::init<>())
      .def("add", &Prober::add, "table"_a, "prefix_bits"_a, "flips"_a, nb::arg("variants").noconvert())
      .def("probe", &Prober::probe, nb::arg("queries").noconvert(), "radius"_a)
      .def("probe_one", &Prober::probe_one, "query"_a, "radius"_a, "identity"_a);

  nb::class_<BlockEncoder>(m, "BlockEncoder")
      .def(nb::init<Bytes, uint32_t, uint64_t>(), "code_bits"_a, "block_bytes"_a, "seed"_a)
      .def("feed", &BlockEncoder::feed, nb::arg("keys").noconvert())
      .def("finish", &BlockEncoder::finish);
}
