// The hot loops, one set per instruction set. Callers take kernels() once per batch; target_*.cpp fill the sets. What they include
// instantiates no template of the standard library: the linker may keep a copy that was made for another instruction set.
#pragma once
#include <atomic>

#include "format/common.hpp"
#include "format/huffman.hpp"

namespace fpstore {

// A bit permutation as rotations of masked words: out = OR of rotl(x & mask[i], rotate[i]). At most 64 terms, few in practice.
struct Permutation {
  unsigned count;
  uint8_t rotate[64];
  uint64_t mask[64];
};
// source[i] is the source bit of destination bit i (0 = MSB); inverse swaps the roles.
void make_permutation(const uint8_t source[64], Permutation* forward, Permutation* inverse);

static inline uint64_t apply(const Permutation& p, uint64_t x) {
  uint64_t y = 0;
  for (unsigned i = 0; i < p.count; ++i) {
    const uint64_t part = x & p.mask[i];
    const unsigned r = p.rotate[i];
    y |= (part << r) | (part >> ((64 - r) & 63));
  }
  return y;
}

// A parsed and mapped table. Blocks are followed by kOverread readable bytes (the key index and the directory).
struct TableView {
  const uint8_t* blocks;
  const uint64_t* keys;
  const uint64_t* directory;
  uint64_t block_count;
  uint64_t fingerprint_count;
  uint64_t seed;
  uint32_t block_bytes;
  unsigned directory_bits;
  Permutation forward;
  Permutation inverse;
  DecodeTable code;
};

// One table's part of a probe: look at every entry whose leading prefix_bits equal the query's XOR one of the variants.
struct TableProbe {
  const TableView* table;
  unsigned prefix_bits;
  unsigned flips;
  uint64_t condition;        // the leading prefix_bits, in unpermuted positions
  const uint64_t* variants;  // masks within the leading prefix_bits, permuted positions, ascending, all distinct
  uint64_t variant_count;
};

struct TableProbes {
  const TableProbe* probes;
  unsigned count;
};

struct Match {
  uint64_t fingerprint;
  uint32_t query;
  uint32_t distance;
};

// Grows by doubling, to limit at most, through grow(), which is compiled once, outside the per-instruction-set files.
struct Sink {
  Match* matches = nullptr;
  uint64_t count = 0;
  uint64_t capacity = 0;
  uint64_t limit = UINT64_MAX;
};
bool grow(Sink* sink);
void release(Sink* sink);

// Memory for the length of a call, nullptr when there is none. A thread keeps what it gave back last, unless it is large, and gets
// it again when it asks for as much: the next probe does.
void* take_memory(size_t bytes);
void give_back(void* memory, size_t bytes);

// Asks for the pages of [p, p + n) to be read from disk, without waiting for them.
void fetch_pages(const void* p, size_t n);

// How many pages this thread has waited for while they were read from disk.
uint64_t major_faults();

// How a long call learns that it is to end early: another thread has set wanted, or poll says so, which is called now and then.
struct Stopper {
  const std::atomic<bool>* wanted = nullptr;
  bool (*poll)() = nullptr;
  uint64_t work = 0;    // since the last look at the faults
  uint64_t quiet = 0;   // since the last poll
  uint64_t faults = 0;  // at the last look
  bool ended = false;   // it has been said so
};
constexpr uint64_t kBlockWork = 64;  // of opening a block, in the unit of an entry decoded or compared
// Whether the call is to end, after this much more work. Polls are a millisecond of work apart, or a few look-ups on disk.
bool should_stop(Stopper* stop, uint64_t work);

// Whether the pages of look-ups are in the page cache, learnt from the faults of the threads that look up. Pages are asked for
// ahead only after a look-up had to wait for one, and for a fixed number of look-ups; how long anything took plays no part.
class PageWatch {
 public:
  enum class Plan { trust, check, fetch };
  // What to do for the next look-ups; of several threads one may miss what another notes, which only shifts the next check.
  Plan plan(unsigned lookups);
  // What a check came to.
  void note(bool waited);

 private:
  static constexpr uint32_t kLookups = 1 << 12;
  std::atomic<uint32_t> ahead_{0};    // look-ups that still ask ahead
  std::atomic<uint32_t> trusted_{0};  // look-ups before the next check
  std::atomic<uint32_t> trust_{0};    // look-ups between the last two checks
};

struct ProbeOptions {
  unsigned radius;
  // From how many look-ups in a table on they are sorted, so that they go through its blocks in order and open each once; by
  // default when they are so many against the blocks that enough of them share one.
  static constexpr uint64_t kDense = UINT64_MAX;
  uint64_t sweep_from = kDense;
  // Ask for all pages of a group of look-ups before the first is waited for: for tables that are not in the page cache.
  bool fetch = false;
  // Decides group by group whether to ask.
  PageWatch* pages = nullptr;
  Stopper* stop = nullptr;
};

struct ProbeCounters {
  uint64_t blocks = 0;      // blocks read
  uint64_t candidates = 0;  // entries whose distance was computed
  uint64_t fetches = 0;     // requests for pages ahead
};

// Streaming encoder state; one partial block is carried from feed to feed.
struct Encoder {
  EncodeTable code;
  uint64_t seed;
  uint32_t block_bytes;
  uint64_t block_index;
  uint64_t previous_key;  // the key of the block before
  uint64_t first;
  uint64_t last;
  uint32_t count;  // entries in the open block; 0: none open
  uint32_t code_bits;
  uint32_t tail_bits;
  alignas(64) uint8_t codes[kMaxBlockBytes + 32];
  alignas(64) uint8_t tails[kMaxBlockBytes + 32];
};

struct Queries {
  const uint64_t* words;
  size_t count;
};

// Blocks from begin on, up to end.
struct BlockRange {
  uint64_t begin;
  uint64_t end;
};

// Where encoded blocks go, with their keys and entry counts.
struct EncodedBlocks {
  uint8_t* blocks;
  uint64_t* keys;
  uint32_t* counts;
};

// Where decoded entries go: room for so many, and the entry count of each block (counts may be null); and what was decoded.
struct Decoded {
  uint64_t* entries;
  uint64_t room;
  uint32_t* counts;
  uint64_t written = 0;
  uint64_t blocks = 0;
};

struct ScanOptions {
  unsigned radius;
  Stopper* stop = nullptr;
};

// Where keys are sorted: the result is in out, tmp has the same room.
struct SortRoom {
  uint64_t* out;
  uint64_t* tmp;
};

struct Kernels {
  const char* name;
  void (*permute)(const Permutation& p, const uint64_t* in, uint64_t* out, size_t n);
  // Permutes, keeps what lies in [low, high] and returns how many were kept; out needs room for n.
  size_t (*permute_select)(const Permutation& p, const uint64_t* in, uint64_t* out, size_t n, uint64_t low, uint64_t high);
  // The sorts leave their arrays in no order when they are stopped.
  // Permutes n keys in ascending order and sorts them by their leading bits bits (stable).
  void (*permute_sort)(const Permutation& p, const uint64_t* in, size_t n, const SortRoom& room, unsigned bits, Stopper* stop);
  // Sorts ascending by the leading bits bits (stable when bits < 64); tmp has the same room. The result is in keys.
  void (*sort_keys)(uint64_t* keys, uint64_t* tmp, size_t n, unsigned bits, Stopper* stop);
  // Pairs are (key, value) words one after the other; sorted by key, stable.
  void (*sort_pairs)(uint64_t* pairs, uint64_t* tmp, size_t n, Stopper* stop);
  // Adds the h of each successive pair of sorted, distinct keys; returns the index of the first key out of order, or n.
  size_t (*histogram)(const uint64_t* keys, size_t n, uint64_t counts[kSymbols]);
  // Sum of XXH64 over unpermuted fingerprints, mod 2^64.
  uint64_t (*digest)(const Permutation& inverse, const uint64_t* keys, size_t n);
  // Appends sorted keys; writes closed blocks; returns their number, or SIZE_MAX with *bad the index of a key that is out of order
  // or for which there is no code.
  size_t (*encode)(Encoder* e, const uint64_t* keys, size_t n, const EncodedBlocks& to, size_t* bad);
  // Closes the open block, if any; returns the number of blocks written (0 or 1).
  size_t (*encode_finish)(Encoder* e, const EncodedBlocks& to);
  // Decodes and verifies blocks one after the other, while the next one fits.
  Status (*decode_blocks)(const TableView& t, const BlockRange& range, Decoded* to, Fault* fault);
  // Distances of every entry of the blocks to every query; matches carry unpermuted fingerprints.
  Status (*scan)(const TableView& t, const BlockRange& range, const Queries& queries, const ScanOptions& options, Sink* sink,
                 Fault* fault);
  // Finds each fingerprint (unpermuted) in t: block and rank inside it, or UINT64_MAX.
  Status (*locate)(const TableView& t, const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop, Fault* fault);
  // Every stored fingerprint that a look-up reaches and that lies within the radius, once. out_of_memory also when the sink is full.
  Status (*probe)(const TableProbes& tables, const Queries& queries, const ProbeOptions& options, Sink* sink,
                  ProbeCounters* counters, Fault* fault);
  // Places, ascending, of the keys within the radius of the query; returns how many. places has room for n.
  size_t (*near)(const uint64_t* keys, size_t n, uint64_t query, unsigned radius, uint32_t* places);
};

extern const Kernels kScalar;
extern const Kernels kAvx2;
extern const Kernels kAvx512;

// The set in use: the best of this machine, or what FPSTORE_ISA (scalar, avx2, avx512) names. nullptr from
// kernels_named when the name is unknown or this machine cannot run it; the module does not load when FPSTORE_ISA is such.
const Kernels& kernels();
const char* wanted_isa();  // FPSTORE_ISA, empty when it is not set
const Kernels* kernels_named(const char* name);
bool select_kernels(const char* name);

}  // namespace fpstore
