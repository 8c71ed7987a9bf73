// The functions of the module. With the other module_*.cpp the only part of the kernel that knows Python: arrays in, one call without
// the GIL, arrays or an exception out.
#include "format/xxh64.hpp"
#include "python/module.hpp"
#include "search/results.hpp"

#include <cstdlib>
#include <numeric>
#include <stdexcept>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fpstore {

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

void raise_fault(const Fault& fault, const std::string& path, Part part) {
  if (fault.status == Status::interrupted) {  // perhaps with the exception of a handler set: nothing of Python may be called
    note_interrupted();
    throw nb::python_error();
  }
  nb::dict facts;
  facts["path"] = path;
  facts["expected"] = fault.expected;
  facts["got"] = fault.got;
  std::string message = path;
  if (fault.block != UINT64_MAX) {
    facts["block"] = fault.block;
    const char* const noun = part == Part::block ? ", block " : fault.status == Status::bad_block_checksum ? ", page " : ", entry ";
    message += noun + std::to_string(fault.block);
  }
  message += std::string(": ") + (part == Part::block ? describe(fault.status) : describe_column(fault.status)) + " (expected " +
             std::to_string(fault.expected) + ", got " + std::to_string(fault.got) + ")";
  switch (fault.status) {
    case Status::out_of_memory:
      raise("MemoryLimitError", "out of memory while collecting matches: probe fewer queries at a time", facts);
    case Status::unknown_version:
    case Status::unknown_flags:
    case Status::unknown_width:
      raise("FormatVersionError", message + ": a newer fpstore wrote it; upgrade to read it", facts);
    default:
      raise("CorruptStoreError", message, facts);
  }
}

Permutation permutation_of(const Bytes& source, bool inverse) {
  const unsigned bits = static_cast<unsigned>(source.size());
  need(is_width(bits), "a permutation has 32, 64, 128 or 256 entries");
  need(is_permutation(source.data(), bits), "not a permutation of the bits");
  Permutation forward, backward;
  make_permutation(source.data(), bits, &forward, &backward);
  return inverse ? backward : forward;
}

namespace {

unsigned width_of(const Bytes& permutation, const Rows& keys) {
  need_words(keys, words_of(static_cast<unsigned>(permutation.size())));
  return static_cast<unsigned>(permutation.size());
}

nb::object permute_keys(Rows keys, Bytes permutation, bool inverse) {
  const Permutation p = permutation_of(permutation, inverse);
  const unsigned width = width_of(permutation, keys);
  Buffer<uint64_t> out(keys.size());
  without_gil([&] { kernels(width).permute(p, keys.data(), out.get(), count_of(keys)); });
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
  return without_gil([&] { return kernels(width).permute_select(p, keys.data(), out.data(), count_of(keys), low.data(), high.data()); });
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

// The pairs of a key of `words` words and a number, one after the other.
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
  return without_gil([&] { return kernels(width).histogram(keys.data(), count_of(keys), counts.data()); });
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
    std::iota(identity, identity + kMaxWidth, uint8_t{0});
    Permutation forward;
    make_permutation(identity, words * 64, &forward, &inverse);
  }
  return without_gil([&] { return kernels(words * 64).digest(inverse, keys.data(), count_of(keys)); });
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
  uint8_t out[kHeaderBytes];
  write_header(&h, out);
  return bytes_of(out, kHeaderBytes);
}

bool map_cached(int descriptor, Bytes mapping, uint64_t start, uint64_t size) {
  if (start > mapping.size() || size > mapping.size() - start) throw nb::value_error("the part is not in the mapping");
  return without_gil([&] { return map_cached_pages(descriptor, mapping.data(), start, size); });
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
    return xxh64(data_of(data), data.size(), seed);
  }, "data"_a, "seed"_a = 0);
  m.def("permute", &permute_keys, "keys"_array, "permutation"_a, "inverse"_a = false);
  m.def("permute_select", &permute_select, "keys"_array, "permutation"_a, "low"_array, "high"_array, "out"_array);
  m.def("permute_sort", &permute_sort, "keys"_array, "permutation"_a, "out"_array, "scratch"_array, "bits"_a, optional_stop());
  m.def("sort_keys", &sort_keys, "keys"_array, "scratch"_array, "bits"_a = nb::none(),
        optional_stop());
  m.def("sort_pairs", &sort_pairs, "pairs"_array, "scratch"_array, "words"_a = 1, optional_stop());
  m.def("histogram", &histogram, "keys"_array, "counts"_array);
  m.def("digest", &digest, "keys"_array, "permutation"_a = nb::none());
  m.def("make_header", &make_header, "permutation"_a, "code_bits"_a, "set_digest"_a, "fingerprint_count"_a, "block_count"_a,
        "block_bytes"_a, "table"_a, "table_count"_a, "prefix_bits"_a, "flips"_a);
  m.def("block_seed", [](Bytes permutation, Bytes code_bits, uint64_t set_digest) {
    return block_seed(header_of(permutation, code_bits, set_digest));
  }, "permutation"_a, "code_bits"_a, "set_digest"_a);
  m.def("map_cached_pages", &map_cached, "descriptor"_a, "mapping"_array, "start"_a, "size"_a);
  m.def("make_directory", &make_directory, "keys"_array);
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
  bind_writers(m);
  bind_numbered(m);
  bind_records(m);
  bind_strings(m);
  bind_pairs(m);
  bind_text(m);
  bind_delta(m);
}
