// The hot loops, one set per instruction set and width. Callers take kernels() once per batch;
// target_*.cpp fill the sets. What they include instantiates no template of the standard library:
// the linker may keep a copy that was made for another instruction set.
#pragma once
#include "build/output.hpp"
#include "format/table_view.hpp"
#include "isa/runtime.hpp"
#include "search/request.hpp"
#include "search/sink.hpp"
#include "text/text_kernels.hpp"

namespace fpstore {

// Fingerprints are rows in arrays of words (format/row.hpp), and counted in rows.
struct Kernels {
  const char* name;
  void (*permute)(const Permutation& p, const uint64_t* in, uint64_t* out, size_t n);
  // Permutes keys, and adds the number of keys with each value of the leading bits to counts.
  void (*count_permuted)(const Permutation& p, const uint64_t* in, size_t n, unsigned bits,
                         uint64_t* counts, Stopper* stop);
  // Permutes keys and writes each to its part of the output; a part keeps the order of the keys.
  // False if a part does not fit into the output.
  bool (*scatter_permuted)(const Permutation& p, const uint64_t* in, size_t n,
                           const ScatterOutput& to, Stopper* stop);
  // The sorts leave their arrays in no order when they are stopped.
  // Permutes n keys in ascending order and sorts them by their leading bits bits (stable).
  void (*permute_sort)(const Permutation& p, const uint64_t* in, size_t n, const SortBuffers& room,
                       unsigned bits, Stopper* stop);
  // Sorts ascending by the leading bits bits (stable when they are not all); tmp has the same room.
  // The result is in keys.
  void (*sort_keys)(uint64_t* keys, uint64_t* tmp, size_t n, unsigned bits, Stopper* stop);
  // Pairs are (key, value) one after the other; sorted by key, stable.
  void (*sort_pairs)(uint64_t* pairs, uint64_t* tmp, size_t n, Stopper* stop);
  // Adds the h of each successive pair of sorted, distinct keys; returns the index of the first key
  // out of order, or n.
  size_t (*histogram)(const uint64_t* keys, size_t n, uint64_t counts[kSymbols]);
  // Sum of XXH64 over unpermuted fingerprints, mod 2^64.
  uint64_t (*digest)(const Permutation& inverse, const uint64_t* keys, size_t n);
  // Appends sorted keys; writes closed blocks; returns their number, or SIZE_MAX with *bad the
  // index of a key that is out of order or for which there is no code.
  size_t (*encode)(Encoder* e, const uint64_t* keys, size_t n, const EncodedBlocks& to,
                   size_t* bad);
  // Closes the open block, if any; returns the number of blocks written (0 or 1).
  size_t (*encode_finish)(Encoder* e, const EncodedBlocks& to);
  // Decodes and verifies blocks one after the other, while the next one fits.
  Status (*decode_blocks)(const TableView& t, const BlockRange& range, Decoded* to, Fault* fault);
  // Distances of every entry of the blocks to every query; matches carry unpermuted fingerprints.
  Status (*scan)(const TableView& t, const BlockRange& range, const Queries& queries,
                 const ScanOptions& options, Sink* sink, Fault* fault);
  // Finds each fingerprint (unpermuted) in t: block and rank inside it, or UINT64_MAX.
  Status (*locate)(const TableView& t, const Queries& fingerprints, uint64_t* blocks,
                   uint32_t* ranks, Stopper* stop, Fault* fault);
  // Every stored fingerprint that a look-up reaches and that lies within the radius, once.
  // out_of_memory also when the sink is full.
  Status (*probe)(const TableProbes& tables, const Queries& queries, const ProbeOptions& options,
                  Sink* sink, ProbeCounters* counters, Fault* fault);
  // Places, ascending, of the keys within the radius of the query, a row; returns how many. places
  // has room for n.
  size_t (*within_radius)(const uint64_t* keys, size_t n, const uint64_t* query, unsigned radius,
                          uint32_t* places);
};

struct ColumnKernels;  // columns/request.hpp
struct PairKernels;    // pairs/request.hpp

// The kernels of an instruction set: for each width, of column tables, of joins, of texts.
struct KernelSets {
  Kernels bits_32, bits_64, bits_128, bits_256;
  const ColumnKernels* columns;
  const PairKernels* pairs;
  TextKernels text;
};
extern const KernelSets kScalar;
extern const KernelSets kAvx2;
extern const KernelSets kAvx512;
extern const KernelSets kNeon;

// The names of the sets, of which no machine has all; the best ones last.
constexpr const char* kSetNames[] = {"scalar", "avx2", "avx512", "neon"};

// What is in use: the kernels of the best instruction set of this machine, or of that which
// FPSTORE_ISA names, one of kSetNames. nullptr from kernels_named when the name is unknown or this
// machine cannot run it; the module does not load when FPSTORE_ISA is such.
const Kernels& kernels(unsigned width);
const ColumnKernels& column_kernels();
const PairKernels& pair_kernels();
const TextKernels& text_kernels();
const char* wanted_isa();  // FPSTORE_ISA, empty when it is not set
const KernelSets* kernels_named(const char* name);
bool select_kernels(const char* name);

}  // namespace fpstore
