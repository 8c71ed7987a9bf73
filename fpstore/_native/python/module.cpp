// The functions of the module. With the other module_*.cpp the only part of the kernel that knows
// Python: arrays in, one call without the GIL, arrays or an exception out.
#include "columns/column_table.hpp"
#include "format/sealed_file.hpp"
#include "format/xxh64.hpp"
#include "python/module.hpp"

#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fpstore {

[[noreturn]] static void raise_fault(const FileFault& met) {
  const Fault& fault = met.fault;
  const std::string& path = met.file.path;
  const Part part = met.file.part;
  if (fault.status == Status::interrupted) {  // perhaps with the exception of a handler set:
                                              // nothing of Python may be called
    note_interrupted();
    throw nb::python_error();
  }
  if (fault.status == Status::out_of_memory)
    raise("MemoryLimitError",
          "out of memory while collecting matches: probe fewer queries at a time");
  std::string message = path;
  nb::object block = nb::none();
  if (fault.block != UINT64_MAX) {
    block = nb::cast(fault.block);
    const char* const noun = part == Part::block                          ? ", block "
                             : fault.status == Status::bad_block_checksum ? ", page "
                                                                          : ", entry ";
    message += noun + std::to_string(fault.block);
  }
  message += std::string(": ") +
             (part == Part::block ? describe(fault.status) : describe_column(fault.status)) +
             " (expected " + std::to_string(fault.expected) + ", got " + std::to_string(fault.got) +
             ")";
  const Status status = fault.status;
  const bool is_newer = status == Status::unknown_version || status == Status::unknown_flags ||
                        status == Status::unknown_width;
  if (is_newer) message += ": a newer fpstore wrote it; upgrade to read it";
  raise(is_newer ? "FormatVersionError" : "CorruptStoreError", message, "path"_a = path,
        "block"_a = block, "expected"_a = fault.expected, "got"_a = fault.got);
}

// EIO and the like are damage of the file.
[[noreturn]] static void raise_sealed(const SealedError& fault) {
  const bool is_damage =
      !fault.error || fault.error == EIO || fault.error == EBADMSG || fault.error == EUCLEAN;
  raise(is_damage ? "CorruptStoreError" : "StorageError",
        fault.message + (is_damage && fault.error ? ": run fpstore repair" : ""),
        "path"_a = fault.path, "expected"_a = fault.expected, "got"_a = fault.got);
}

namespace {

Permutation permutation_of(const Bytes& source, bool inverse) {
  return fpstore::permutation_of(source.data(), source.size(), inverse);
}

unsigned width_of(const Bytes& permutation, const Rows& keys) {
  need_words(keys, words_of(static_cast<unsigned>(permutation.size())));
  return static_cast<unsigned>(permutation.size());
}

nb::object permute_keys(Rows keys, Bytes permutation, bool inverse) {
  const Permutation p = permutation_of(permutation, inverse);
  const unsigned width = width_of(permutation, keys);
  Buffer<uint64_t> out(keys.size());
  call([&] { kernels(width).permute(p, keys.data(), out.get(), count_of(keys)); });
  return out.array(count_of(keys), words_of(width));
}

// Returns the number of permuted keys with each value of the leading bits.
nb::object count_permuted(Rows keys, Bytes permutation, unsigned bits, const Stop* stop) {
  const Permutation p = permutation_of(permutation, false);
  const unsigned width = width_of(permutation, keys);
  need(bits <= kMaxBucketBits, "too many bits for the number of a part");
  Buffer<uint64_t> counts(size_t{1} << bits);
  std::fill_n(counts.get(), size_t{1} << bits, 0);
  call(stop, [&](Stopper* stopping) {
    kernels(width).count_permuted(p, keys.data(), count_of(keys), bits, counts.get(), stopping);
  });
  return counts.array(size_t{1} << bits);
}

// Permutes keys, and writes the keys of the parts from `first` on to out, each part from its start
// on. The leading bits of a key are the number of its part.
void scatter_permuted(Rows keys, Bytes permutation, unsigned bits, size_t first, Words starts,
                      MutableRows out, const Stop* stop) {
  const Permutation p = permutation_of(permutation, false);
  const unsigned width = width_of(permutation, keys);
  const size_t parts = starts.size();
  need_words(out, words_of(width));
  need(bits <= kMaxBucketBits && first <= size_t{1} << bits && parts <= (size_t{1} << bits) - first,
       "no such parts");
  for (size_t d = 0; d < parts; ++d)
    need(starts.data()[d] <= count_of(out), "a part starts behind the rows");
  Buffer<uint64_t> memory(kScatterWords * (parts + 1));
  const ScatterOutput to{bits,       first,         parts,       starts.data(),
                         out.data(), count_of(out), memory.get()};
  need(call(stop,
            [&](Stopper* stopping) {
              return kernels(width).scatter_permuted(p, keys.data(), count_of(keys), to, stopping);
            }),
       "a part has no room");
}

// Permutes keys that are in ascending order and sorts them by their leading bits, stable, into out.
void permute_sort(Rows keys, Bytes permutation, MutableRows out, MutableRows scratch, unsigned bits,
                  const Stop* stop) {
  const Permutation p = permutation_of(permutation, false);
  const unsigned width = width_of(permutation, keys);
  need_words(out, words_of(width));
  need_words(scratch, words_of(width));
  need(out.size() >= keys.size() && scratch.size() >= keys.size(), "out or scratch is too short");
  need(bits >= 1 && bits <= width, "bits is 1 to the width");
  call(stop, [&](Stopper* stopping) {
    kernels(width).permute_sort(p, keys.data(), count_of(keys),
                                SortBuffers{out.data(), scratch.data()}, bits, stopping);
  });
}

void sort_keys(MutableRows keys, MutableRows scratch, std::optional<unsigned> bits,
               const Stop* stop) {
  const unsigned words = words_in(keys), width = words * 64;
  need_words(scratch, words);
  need(scratch.size() >= keys.size(), "scratch is too short");
  need(!bits || (*bits >= 1 && *bits <= width), "bits is 1 to those of a row");
  call(stop, [&](Stopper* stopping) {
    kernels(width).sort_keys(keys.data(), scratch.data(), count_of(keys), bits.value_or(width),
                             stopping);
  });
}

// Sorts pairs of a key of `words` words and a number, which lie one after the other.
void sort_pairs(MutableWords pairs, MutableWords scratch, unsigned words, const Stop* stop) {
  need(words == 1 || words == 2 || words == 4, "keys have 1, 2 or 4 words");
  need(pairs.size() % (words + 1) == 0 && scratch.size() >= pairs.size(),
       "scratch or out is too short");
  const size_t n = pairs.size() / (words + 1);
  call(stop, [&](Stopper* stopping) {
    kernels(words * 64).sort_pairs(pairs.data(), scratch.data(), n, stopping);
  });
}

// Adds the histogram of h into counts (65 places); returns the index of the first key out of order,
// or len(keys).
size_t histogram(Rows keys, MutableWords counts) {
  need(counts.size() == kSymbols, "counts has 65 places");
  const unsigned width = words_in(keys) * 64;
  return call([&] { return kernels(width).histogram(keys.data(), count_of(keys), counts.data()); });
}

// Of keys that are permuted, or not if there is no permutation.
uint64_t digest(Rows keys, std::optional<Bytes> permutation) {
  const unsigned words = words_in(keys);
  uint8_t identity[kMaxWidth];
  std::iota(identity, identity + kMaxWidth, uint8_t{0});
  if (permutation) width_of(*permutation, keys);
  const Permutation inverse = permutation ? permutation_of(*permutation, true)
                                          : fpstore::permutation_of(identity, words * 64, true);
  return call([&] { return kernels(words * 64).digest(inverse, keys.data(), count_of(keys)); });
}

TableHeader header_of(Bytes permutation, Bytes code_bits, uint64_t set_digest, uint16_t table,
                      uint16_t table_count) {
  need(is_width(static_cast<unsigned>(permutation.size())),
       "a permutation has 32, 64, 128 or 256 entries");
  need(code_bits.size() == kSymbols, "a code has 65 lengths");
  TableHeader h = make_header<TableHeader>(permutation, set_digest, table, table_count);
  std::copy_n(code_bits.data(), kSymbols, h.code_bits);
  return h;
}

nb::bytes table_header(Bytes permutation, Bytes code_bits, uint64_t set_digest,
                       uint64_t fingerprint_count, uint64_t block_count, uint32_t block_bytes,
                       uint16_t table, uint16_t table_count, uint16_t prefix_bits, uint16_t flips) {
  TableHeader h = header_of(permutation, code_bits, set_digest, table, table_count);
  h.fingerprint_count = fingerprint_count;
  h.block_count = block_count;
  h.block_bytes = block_bytes;
  h.prefix_bits = prefix_bits;
  h.flips = flips;
  uint8_t out[kHeaderBytes];
  write_header(&h, out);
  return bytes_of(out, kHeaderBytes);
}

bool map_cached(int descriptor, Bytes mapping, uint64_t start, uint64_t size) {
  need(start <= mapping.size() && size <= mapping.size() - start, "the part is not in the mapping");
  return call([&] { return map_cached_pages(descriptor, mapping.data(), start, size); });
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
  throw std::runtime_error(
      "FPSTORE_ISA is '" + wanted +
      "', an instruction set that is unknown or that this machine lacks; it has " + names +
      " (unset it to use the best)");
}

}  // namespace
}  // namespace fpstore

NB_MODULE(_kernel, m) {
  using namespace fpstore;
  check_wanted_isa();
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      try {
        std::rethrow_exception(error);
      } catch (const Interrupted&) {
        note_interrupted();
      } catch (const std::bad_alloc&) {
        raise("MemoryLimitError", "out of memory: work on fewer rows at a time");
      } catch (const FileFault& fault) {
        raise_fault(fault);
      } catch (const SealedError& fault) {
        raise_sealed(fault);
      }
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  });
  // A daemon thread may hold objects when the process ends, which is no fault of who sees the
  // warning.
  nb::set_leak_warnings(getenv("FPSTORE_SHOW_LEAKS") != nullptr);
  const std::pair<const char*, uint64_t> constants[] = {
      {"FORMAT_VERSION", kFormatVersion},  {"HEADER_BYTES", kHeaderBytes},
      {"MAX_CODE_BITS", kMaxCodeBits},     {"MAX_ENTRIES", kMaxEntries},
      {"OVERREAD_BYTES", kOverread},       {"ROWS_IN_BLOCK", kRowsInBlock},
      {"PAGE_BYTES", kPageBytes},          {"TAG_BITS", kTagBits},
      {"MIN_BUCKET_BITS", kMinBucketBits}, {"MAX_BUCKET_BITS", kMaxBucketBits},
      {"LOOKUP_ENTRIES", kLookupEntries},  {"ORDERED_QUERIES", kOrderedFrom},
      {"SPARE_THRESHOLDS", kSpare},        {"MAX_RING", kMaxRing},
      {"TAG_ROOM", kSectionRoom / 2}};
  for (const auto& [name, value] : constants) m.attr(name) = value;
  m.def("isa", [] { return std::string(kernels(64).name); });
  m.def("available_isas", &available);
  m.def(
      "select_isa",
      [](const std::string& name) {
        if (!select_kernels(name.c_str()))
          throw nb::value_error("this machine has no such instruction set");
      },
      "name"_a);
  m.def(
      "xxh64",
      [](nb::bytes data, uint64_t seed) { return xxh64(data_of(data), data.size(), seed); },
      "data"_a, "seed"_a = 0);
  m.def("permute", &permute_keys, "keys"_array, "permutation"_a, "inverse"_a = false);
  m.def("count_permuted", &count_permuted, "keys"_array, "permutation"_a, "bits"_a,
        optional_stop());
  m.def("scatter_permuted", &scatter_permuted, "keys"_array, "permutation"_a, "bits"_a, "first"_a,
        "starts"_array, "out"_array, optional_stop());
  m.def("permute_sort", &permute_sort, "keys"_array, "permutation"_a, "out"_array, "scratch"_array,
        "bits"_a, optional_stop());
  m.def("sort_keys", &sort_keys, "keys"_array, "scratch"_array, "bits"_a = nb::none(),
        optional_stop());
  m.def("sort_pairs", &sort_pairs, "pairs"_array, "scratch"_array, "words"_a = 1, optional_stop());
  m.def("histogram", &histogram, "keys"_array, "counts"_array);
  m.def("digest", &digest, "keys"_array, "permutation"_a = nb::none());
  m.def("make_header", &table_header, "permutation"_a, "code_bits"_a, "set_digest"_a,
        "fingerprint_count"_a, "block_count"_a, "block_bytes"_a, "table"_a, "table_count"_a,
        "prefix_bits"_a, "flips"_a);
  m.def(
      "block_seed",
      [](Bytes permutation, Bytes code_bits, uint64_t set_digest) {
        return block_seed(header_of(permutation, code_bits, set_digest, 0, 1));
      },
      "permutation"_a, "code_bits"_a, "set_digest"_a);
  m.def("map_cached_pages", &map_cached, "descriptor"_a, "mapping"_array, "start"_a, "size"_a);
  // Gives free memory of the allocator, of which it keeps some, back to the system.
  m.def("trim", [] {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  });
  for (Bind* const bind :
       {&bind_tables, &bind_probers, &bind_sealed, &bind_single, &bind_lsh, &bind_columns,
        &bind_writers, &bind_numbered, &bind_records, &bind_strings, &bind_lines, &bind_pairs,
        &bind_text, &bind_passages, &bind_delta})
    bind(m);
}
