// What is asked of the tables: queries, look-ups and options.
#pragma once
#include <atomic>

#include "format/filter.hpp"
#include "format/table_view.hpp"
#include "isa/runtime.hpp"
#include "search/nearest.hpp"

namespace fpstore {

// One table's part of a probe: look at every entry whose leading prefix_bits equal the query's XOR
// one of the variants.
struct TableProbe {
  const TableView* table;
  unsigned prefix_bits;  // at most 64
  unsigned flips;
  uint64_t condition[kMaxWords];  // the leading prefix_bits, in unpermuted positions
  const uint64_t* variants;  // masks within the leading prefix_bits, permuted positions, ascending,
                             // all distinct
  uint64_t variant_count;
  const FilterView* filter = nullptr;  // of at most prefix_bits
  double passing = 1;                  // the share of the look-ups that pass the filter, about
};

// Those from number first on, up to end. A pair that meets in an earlier table is left to that one.
struct TableProbes {
  const TableProbe* probes;
  unsigned first, end;
};

// Where an entry stands in its table.
struct EntryPlace {
  uint64_t block;  // UINT64_MAX where that is not known
  uint32_t rank;
};

// Notes where the first matches of a probe stand, if they were found in this table.
struct FoundPlaces {
  static constexpr unsigned kMost = 64;
  const TableView* table;
  // Called with each block at once, and with the context: what follows from it can be fetched
  // meanwhile.
  void (*on_block)(const void* context, uint64_t block);
  const void* context;
  unsigned count = 0;
  EntryPlace of[kMost];
};

// How the look-ups in a table follow each other: as they are asked for; nearly by ascending target;
// or sorted, in one sweep that opens each block once. By default the kernel chooses, by how many
// they are.
enum class Order { best, asked, near, sorted };

// Whether the pages of look-ups are in the page cache, learnt from the faults of the threads that
// look up. Pages are asked for ahead only after a look-up had to wait for one, and for a fixed
// number of look-ups; how long anything took plays no part.
class PageWatch {
 public:
  enum class Plan { trust, check, fetch };
  // What to do for the next look-ups; of several threads one may miss what another notes, which
  // only shifts the next check.
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
  Order order = Order::best;
  // Ask for all pages of a group of look-ups before the first is waited for: for tables that are
  // not in the page cache.
  bool fetch = false;
  // Decides group by group whether to ask.
  PageWatch* pages = nullptr;
  Stopper* stop = nullptr;
  FoundPlaces* places = nullptr;
  // For look-ups that are sorted; by default they have memory for the length of the call.
  Scratch* scratch = nullptr;
};

struct ProbeCounters {
  uint64_t blocks = 0;      // blocks read
  uint64_t candidates = 0;  // entries whose distance was computed
  uint64_t fetches = 0;     // requests for pages ahead
};

struct ScanOptions {
  unsigned radius;
  Stopper* stop = nullptr;
  Nearest* nearest = nullptr;  // keeps the nearest matches of each query, and the sink gets none
};

}  // namespace fpstore
