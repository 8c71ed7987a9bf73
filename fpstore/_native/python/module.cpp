// The functions of the module. With the other module_*.cpp the only part of the kernel that knows Python: arrays in, one call without
// the GIL, arrays or an exception out.
#include "format/idpack.hpp"
#include "format/xxh64.hpp"
#include "python/module.hpp"
#include "search/results.hpp"

#include <cstdlib>
#include <stdexcept>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fpstore {

Permutation permutation_of(const Bytes& source, bool inverse) {
  const unsigned bits = static_cast<unsigned>(source.size());
  if (!is_width(bits)) throw nb::value_error("a permutation has 32, 64, 128 or 256 entries");
  bool seen[kMaxWidth] = {};
  for (unsigned i = 0; i < bits; ++i) {
    if (source.data()[i] >= bits || seen[source.data()[i]]) throw nb::value_error("not a permutation of the bits");
    seen[source.data()[i]] = true;
  }
  Permutation forward, backward;
  make_permutation(source.data(), bits, &forward, &backward);
  return inverse ? backward : forward;
}

namespace {

unsigned width_of(const Bytes& permutation, const Rows& keys) {
  need_words(keys, words_of(static_cast<unsigned>(permutation.size())));
  return static_cast<unsigned>(permutation.size());
}

nb::object permute(Rows keys, Bytes permutation, bool inverse) {
  const Permutation p = permutation_of(permutation, inverse);
  const unsigned width = width_of(permutation, keys);
  Buffer<uint64_t> out(keys.size());
  {
    ReleasedGil released;
    kernels(width).permute(p, keys.data(), out.get(), count_of(keys));
  }
  return out.array(count_of(keys), words_of(width));
}

// Writes the permuted keys that lie in [low, high], which are rows, to out, which must be as long as keys; returns how many.
size_t permute_select(Rows keys, Bytes permutation, Rows low, Rows high, MutableRows out) {
  const Permutation p = permutation_of(permutation, false);
  const unsigned width = width_of(permutation, keys);
  for (const Rows& bound : {low, high}) {
    need_words(bound, words_of(width));
    if (count_of(bound) != 1) throw nb::value_error("low and high are one row each");
  }
  need_words(out, words_of(width));
  if (out.size() < keys.size()) throw nb::value_error("out is too short");
  ReleasedGil released;
  return kernels(width).permute_select(p, keys.data(), out.data(), count_of(keys), low.data(), high.data());
}

// Permutes keys that are in ascending order and sorts them by their leading bits, stable, into out.
void permute_sort(Rows keys, Bytes permutation, MutableRows out, MutableRows scratch, unsigned bits, const Stop* stop) {
  const Permutation p = permutation_of(permutation, false);
  const unsigned width = width_of(permutation, keys);
  need_words(out, words_of(width));
  need_words(scratch, words_of(width));
  if (out.size() < keys.size() || scratch.size() < keys.size()) throw nb::value_error("out or scratch is too short");
  if (bits < 1 || bits > width) throw nb::value_error("bits is 1 to the width");
  until_stopped(stop, [&](Stopper* stopping) {
    kernels(width).permute_sort(p, keys.data(), count_of(keys), SortRoom{out.data(), scratch.data()}, bits, stopping);
  });
}

void sort_keys(MutableRows keys, MutableRows scratch, std::optional<unsigned> bits, const Stop* stop) {
  const unsigned words = words_in(keys), width = words * 64;
  need_words(scratch, words);
  if (scratch.size() < keys.size()) throw nb::value_error("scratch is too short");
  if (bits && (*bits < 1 || *bits > width)) throw nb::value_error("bits is 1 to those of a row");
  until_stopped(stop, [&](Stopper* stopping) {
    kernels(width).sort_keys(keys.data(), scratch.data(), count_of(keys), bits.value_or(width), stopping);
  });
}

// Pairs of a key of so many words and a number, one after the other.
size_t pairs_in(const MutableWords& pairs, const MutableWords& room, unsigned words) {
  if (words != 1 && words != 2 && words != 4) throw nb::value_error("keys have 1, 2 or 4 words");
  if (pairs.size() % (words + 1) || room.size() < pairs.size()) throw nb::value_error("scratch or out is too short");
  return pairs.size() / (words + 1);
}

void sort_pairs(MutableWords pairs, MutableWords scratch, unsigned words, const Stop* stop) {
  const size_t n = pairs_in(pairs, scratch, words);
  until_stopped(stop, [&](Stopper* stopping) { kernels(words * 64).sort_pairs(pairs.data(), scratch.data(), n, stopping); });
}

// Adds the histogram of h into counts (65 places); returns the index of the first key out of order, or len(keys).
size_t histogram(Rows keys, MutableWords counts) {
  if (counts.size() != kSymbols) throw nb::value_error("counts has 65 places");
  const unsigned width = words_in(keys) * 64;
  ReleasedGil released;
  return kernels(width).histogram(keys.data(), count_of(keys), counts.data());
}

// Of keys that are permuted, or not if there is no permutation.
uint64_t digest(Rows keys, std::optional<Bytes> permutation) {
  if (permutation) width_of(*permutation, keys);
  const unsigned words = words_in(keys);
  Permutation inverse;
  if (permutation) {
    inverse = permutation_of(*permutation, true);
  } else {
    uint8_t identity[kMaxWidth];
    for (unsigned i = 0; i < kMaxWidth; ++i) identity[i] = static_cast<uint8_t>(i);
    Permutation forward;
    make_permutation(identity, words * 64, &forward, &inverse);
  }
  ReleasedGil released;
  return kernels(words * 64).digest(inverse, keys.data(), count_of(keys));
}

TableHeader header_of(Bytes permutation, Bytes code_bits, uint64_t set_digest) {
  if (!is_width(static_cast<unsigned>(permutation.size()))) throw nb::value_error("a permutation has 32, 64, 128 or 256 entries");
  if (code_bits.size() != kSymbols) throw nb::value_error("a code has 65 lengths");
  TableHeader h;
  h.width = static_cast<uint16_t>(permutation.size());
  memcpy(h.permutation, permutation.data(), permutation.size());
  memcpy(h.code_bits, code_bits.data(), kSymbols);
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

bool map_cached(int descriptor, Bytes mapping, uint64_t start, uint64_t size) {
  if (start > mapping.size() || size > mapping.size() - start) throw nb::value_error("the part is not in the mapping");
  ReleasedGil released;
  return map_cached_pages(descriptor, mapping.data(), start, size);
}

// The directory of a sorted key index: slot x holds the number of keys below x in their leading bits.
nb::object make_directory(Rows keys) {
  const unsigned words = words_in(keys);
  const size_t count = count_of(keys);
  const unsigned bits = directory_bits_for(count);
  const uint64_t slots = uint64_t{1} << bits;
  Buffer<uint64_t> out(slots + 1);
  uint64_t b = 0;
  for (uint64_t slot = 0; slot < slots; ++slot) {
    if (bits)
      while (b < count && keys.data()[b * words] < slot << (64 - bits)) ++b;
    out.get()[slot] = b;
  }
  out.get()[slots] = count;
  return out.array(slots + 1);
}

// Id records of blocks with the given entry counts and keys: (bytes, offsets). seed is that of key 0.
nb::tuple pack_ids(Words ids, Words lims, Counts block_counts, Words keys, uint64_t seed) {
  if (keys.size() != block_counts.size()) throw nb::value_error("columns of different lengths");
  uint64_t fingerprints = 0;
  for (size_t b = 0; b < block_counts.size(); ++b) {
    if (block_counts.data()[b] < 1 || block_counts.data()[b] > kMaxEntries) throw nb::value_error("a block has 1 to 32768 entries");
    fingerprints += block_counts.data()[b];
  }
  if (lims.size() != fingerprints + 1 || lims.data()[fingerprints] > ids.size())
    throw nb::value_error("lims, ids and block counts disagree");
  for (uint64_t i = 0; i < fingerprints; ++i)
    if (lims.data()[i] >= lims.data()[i + 1]) throw nb::value_error("every fingerprint needs an id");
  Buffer<uint64_t> offsets(block_counts.size() + 1);
  uint64_t* const o = offsets.get();
  std::unique_ptr<uint8_t[]> bytes;
  {
    ReleasedGil released;
    o[0] = 0;
    uint64_t first = 0;
    for (size_t b = 0; b < block_counts.size(); first += block_counts.data()[b++])
      o[b + 1] = o[b] + record_bytes(ids.data(), lims.data() + first, block_counts.data()[b]);
    bytes.reset(new uint8_t[o[block_counts.size()] + 1]);
    first = 0;
    for (size_t b = 0; b < block_counts.size(); first += block_counts.data()[b++])
      pack_record(ids.data(), lims.data() + first, block_counts.data()[b], seed + keys.data()[b], bytes.get() + o[b]);
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
  unpack_counts(record, counts.get());
  unpack_ids(record, ids.get());
  return nb::make_tuple(counts.array(record.count), ids.array(record.total));
}

// (lims, ids) of many places: ids of rank ranks[i] in records[record[i]], which has the key keys[record[i]].
nb::tuple gather_ids(nb::list records, Words keys, Words record, Counts ranks, uint64_t seed, const std::string& path) {
  const size_t n = record.size();
  if (ranks.size() != n || keys.size() != nb::len(records)) throw nb::value_error("columns of different lengths");
  std::vector<IdRecord> opened(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    opened[i] = record_of(nb::cast<nb::bytes>(records[i]), seed + keys.data()[i], path);  // records keeps the bytes alive
  Buffer<int64_t> lims(n + 1);
  int64_t* const l = lims.get();
  std::vector<uint64_t> firsts(n);
  l[0] = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t place = record.data()[i];
    if (place >= opened.size()) throw nb::index_error("no such record");
    const uint32_t rank = ranks.data()[i];
    if (rank >= opened[place].count) raise_fault(Fault{Status::bad_record, UINT64_MAX, rank, opened[place].count}, path);
    l[i + 1] = l[i] + static_cast<int64_t>(ids_of_rank(opened[place], rank, &firsts[i]));
  }
  const size_t total = static_cast<size_t>(l[n]);
  Buffer<uint64_t> ids(total);
  {
    ReleasedGil released;
    for (size_t i = 0; i < n; ++i)
      for (int64_t j = l[i]; j < l[i + 1]; ++j)
        ids.get()[j] = id_at(opened[record.data()[i]], firsts[i] + static_cast<uint64_t>(j - l[i]));
  }
  return nb::make_tuple(lims.array(n + 1), ids.array(total));
}

std::vector<std::string> available() {
  std::vector<std::string> names;
  for (const char* name : kSetNames)
    if (kernels_named(name)) names.emplace_back(name);
  return names;
}

// Refuses to load when FPSTORE_ISA names what is not there: the exception becomes an ImportError.
void check_wanted_isa() {
  std::string wanted = wanted_isa();
  if (wanted.empty() || kernels_named(wanted.c_str())) return;
  for (char& c : wanted)
    if (c < ' ' || c > '~') c = '?';  // one line of ASCII, whatever the environment holds
  std::string names;
  for (const std::string& name : available()) names += (names.empty() ? "" : ", ") + name;
  throw std::runtime_error("FPSTORE_ISA is '" + wanted + "', an instruction set that is unknown or that this machine lacks; it has " +
                           names + " (unset it to use the best)");
}

}  // namespace
}  // namespace fpstore

NB_MODULE(_kernel, m) {
  using namespace fpstore;
  check_wanted_isa();
  // A daemon thread may hold objects when the process ends, which is no fault of who sees the warning.
  nb::set_leak_warnings(getenv("FPSTORE_SHOW_LEAKS") != nullptr);
  m.attr("FORMAT_VERSION") = kFormatVersion;
  m.attr("HEADER_BYTES") = kHeaderBytes;
  m.attr("MAX_CODE_BITS") = kMaxCodeBits;
  m.attr("MAX_ENTRIES") = kMaxEntries;
  m.attr("OVERREAD_BYTES") = kOverread;
  m.def("isa", [] { return std::string(kernels(64).name); });
  m.def("available_isas", &available);
  m.def("select_isa", [](const std::string& name) {
    if (!select_kernels(name.c_str())) throw nb::value_error("this machine has no such instruction set");
  }, "name"_a);
  m.def("xxh64", [](nb::bytes data, uint64_t seed) {
    return xxh64(reinterpret_cast<const uint8_t*>(data.c_str()), data.size(), seed);
  }, "data"_a, "seed"_a = 0);
  m.def("permute", &permute, nb::arg("keys").noconvert(), "permutation"_a, "inverse"_a = false);
  m.def("permute_select", &permute_select, nb::arg("keys").noconvert(), "permutation"_a, nb::arg("low").noconvert(),
        nb::arg("high").noconvert(), nb::arg("out").noconvert());
  m.def("permute_sort", &permute_sort, nb::arg("keys").noconvert(), "permutation"_a, nb::arg("out").noconvert(),
        nb::arg("scratch").noconvert(), "bits"_a, "stop"_a = nb::none());
  m.def("sort_keys", &sort_keys, nb::arg("keys").noconvert(), nb::arg("scratch").noconvert(), "bits"_a = nb::none(),
        "stop"_a = nb::none());
  m.def("sort_pairs", &sort_pairs, nb::arg("pairs").noconvert(), nb::arg("scratch").noconvert(), "words"_a = 1, "stop"_a = nb::none());
  m.def("histogram", &histogram, nb::arg("keys").noconvert(), nb::arg("counts").noconvert());
  m.def("digest", &digest, nb::arg("keys").noconvert(), "permutation"_a = nb::none());
  m.def("make_header", &make_header, "permutation"_a, "code_bits"_a, "set_digest"_a, "fingerprint_count"_a, "block_count"_a,
        "block_bytes"_a, "table"_a, "table_count"_a, "prefix_bits"_a, "flips"_a);
  m.def("block_seed", [](Bytes permutation, Bytes code_bits, uint64_t set_digest) {
    return block_seed(header_of(permutation, code_bits, set_digest));
  }, "permutation"_a, "code_bits"_a, "set_digest"_a);
  m.def("map_cached_pages", &map_cached, "descriptor"_a, nb::arg("mapping").noconvert(), "start"_a, "size"_a);
  m.def("make_directory", &make_directory, nb::arg("keys").noconvert());
  m.def("pack_ids", &pack_ids, nb::arg("ids").noconvert(), nb::arg("lims").noconvert(), nb::arg("block_counts").noconvert(),
        nb::arg("keys").noconvert(), "seed"_a);
  m.def("unpack_rank", &unpack_rank, "record"_a, "seed"_a, "rank"_a, "path"_a);
  m.def("unpack_record", &unpack_record, "record"_a, "seed"_a, "path"_a);
  m.def("gather_ids", &gather_ids, "records"_a, nb::arg("keys").noconvert(), nb::arg("record").noconvert(),
        nb::arg("ranks").noconvert(), "seed"_a, "path"_a);
  // Gives free memory of the allocator, of which it keeps some, back to the system.
  m.def("trim", [] {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  });
  bind_tables(m);
  bind_probers(m);
  bind_sealed(m);
  bind_single(m);
  bind_columns(m);
  bind_encoder(m);
  bind_filters(m);
  bind_numbered(m);
  bind_merge(m);
  bind_log(m);
  bind_strings(m);
  bind_pairs(m);
  bind_text(m);
  bind_delta(m);
}
