// The permuted tables without compression: sorted words and a binary search, as a rival of
// fpstore's kernel in the same run.
//
// Look-ups go in groups. The tables hold the same number of entries, so the binary searches of a
// group run in lockstep: each step fetches ahead the word that the next one compares, and the
// memory latency of a step is shared by the whole group. Large batches are partitioned by their
// leading bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

constexpr unsigned kGroup = 32;
constexpr unsigned kPartBits = 13;
constexpr size_t kMinSorted = 1 << 12, kMaxSorted = 1 << 22;  // look-ups of one table
constexpr unsigned kRun = 16;  // entries of a long run whose distances are taken together

// A permutation as rotations of masked words.
struct Permutation {
  unsigned count = 0;
  unsigned rotate[64];
  uint64_t mask[64];

  void add(unsigned from, unsigned to) {
    const unsigned rotation = (to - from) & 63;
    unsigned i = 0;
    while (i < count && rotate[i] != rotation) ++i;
    if (i == count) {
      rotate[count] = rotation;
      mask[count++] = 0;
    }
    mask[i] |= uint64_t{1} << from;
  }

  uint64_t operator()(uint64_t x) const {
    uint64_t y = 0;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t part = x & mask[i];
      y |= (part << rotate[i]) | (part >> ((64 - rotate[i]) & 63));
    }
    return y;
  }
};

uint64_t top_mask(unsigned bits) { return bits == 0 ? 0 : ~uint64_t{0} << (64 - bits); }

unsigned distance(uint64_t a, uint64_t b) {
  return static_cast<unsigned>(__builtin_popcountll(a ^ b));
}

// Whether any of kRun entries is near. Not inlined, which keeps the loop whole for the vectoriser.
[[gnu::noinline]] bool any_near(const uint64_t* p, uint64_t base, uint64_t radius) {
  uint64_t count = 0;
  for (unsigned j = 0; j < kRun; ++j)
    count += static_cast<uint64_t>(__builtin_popcountll(p[j] ^ base)) <= radius;
  return count != 0;
}

struct Match {
  uint64_t fingerprint;
  uint32_t query;
  uint32_t distance;
};

}  // namespace

extern "C" {

struct RivalTable {
  const uint64_t* entries;     // sorted, permuted
  const uint8_t* permutation;  // source bit of each bit, 0 = most significant
  const uint64_t* variants;    // masks within the leading prefix_bits
  uint64_t variant_count;
  uint32_t prefix_bits;
  uint32_t flips;
};
}

namespace {

struct Table {
  const RivalTable* from;
  Permutation forward;
  Permutation inverse;
  uint64_t mask;
  uint64_t condition;  // the leading bits, in unpermuted positions
};

struct Item {
  const Table* table;
  uint64_t base;  // the permuted query
  uint64_t query;
  uint32_t index;
};

struct Search {
  std::vector<Table> tables;
  uint64_t entry_count;
  unsigned radius;
  std::vector<Match> matches;
  std::vector<Item> sorted;
  std::vector<uint64_t> sorted_targets;
  Item items[kGroup];
  uint64_t targets[kGroup];
  const uint64_t* at[kGroup];

  // A pair that meets in an earlier table is left to that one.
  void emit(const Item& item, uint64_t entry) {
    const uint64_t difference = item.table->inverse(entry ^ item.base);
    for (const Table* earlier = tables.data(); earlier < item.table; ++earlier)
      if (static_cast<unsigned>(__builtin_popcountll(difference & earlier->condition)) <=
          earlier->from->flips)
        return;
    matches.push_back(Match{item.query ^ difference, item.index, distance(entry, item.base)});
  }

  void take_run(const Item& item, uint64_t target, const uint64_t* p) {
    const uint64_t* end = item.table->from->entries + entry_count;
    const uint64_t mask = item.table->mask, base = item.base;
    while (end - p >= kRun && (p[kRun - 1] & mask) == target) {
      if (any_near(p, base, radius))
        for (unsigned j = 0; j < kRun; ++j)
          if (distance(p[j], base) <= radius) emit(item, p[j]);
      p += kRun;
    }
    for (; p < end && (*p & mask) == target; ++p)
      if (distance(*p, base) <= radius) emit(item, *p);
  }

  void run_group(unsigned n) {
    for (unsigned i = 0; i < n; ++i) at[i] = items[i].table->from->entries;
    for (uint64_t length = entry_count; length > 1;) {
      const uint64_t half = length / 2;
      length -= half;
      const uint64_t ahead = length > 1 ? length / 2 - 1 : 0;
      for (unsigned i = 0; i < n; ++i) {
        at[i] += half * (at[i][half - 1] <
                         targets[i]);  // a product: a branch would be mispredicted every other time
        __builtin_prefetch(at[i] + ahead);
      }
    }
    for (unsigned i = 0; i < n; ++i) {
      at[i] += *at[i] < targets[i];
      __builtin_prefetch(at[i]);
      __builtin_prefetch(at[i] + 8);
    }
    for (unsigned i = 0; i < n; ++i) take_run(items[i], targets[i], at[i]);
  }

  // Takes look-ups in groups.
  void run_all(const Item* all, const uint64_t* wanted, uint64_t count) {
    for (uint64_t i = 0; i < count; i += kGroup) {
      const unsigned n = static_cast<unsigned>(std::min<uint64_t>(kGroup, count - i));
      std::copy(all + i, all + i + n, items);
      std::copy(wanted + i, wanted + i + n, targets);
      run_group(n);
    }
  }

  // Partitions look-ups by the leading bits of what they look for, as fpstore does: neighbours meet
  // the same lines of the cache.
  void run_partitioned(const std::vector<Item>& all, const std::vector<uint64_t>& wanted) {
    std::vector<uint32_t> starts((size_t{1} << kPartBits) + 1);
    for (uint64_t target : wanted) ++starts[(target >> (64 - kPartBits)) + 1];
    for (size_t d = 0; d + 1 < starts.size(); ++d) starts[d + 1] += starts[d];
    sorted.resize(all.size());
    sorted_targets.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const uint32_t to = starts[wanted[i] >> (64 - kPartBits)]++;
      sorted[to] = all[i];
      sorted_targets[to] = wanted[i];
    }
    run_all(sorted.data(), sorted_targets.data(), all.size());
  }

  void run(const uint64_t* queries, uint64_t query_count) {
    if (entry_count == 0) return;
    std::vector<Item> all;
    std::vector<uint64_t> wanted;
    for (const Table& table : tables)
      for (uint64_t q = 0; q < query_count; ++q) {
        const uint64_t base = table.forward(queries[q]);
        for (uint64_t v = 0; v < table.from->variant_count; ++v) {
          all.push_back(Item{&table, base, queries[q], static_cast<uint32_t>(q)});
          wanted.push_back((base ^ table.from->variants[v]) & table.mask);
        }
        if (all.size() < kMaxSorted && q + 1 < query_count) continue;
        if (all.size() >= kMinSorted)
          run_partitioned(all, wanted);
        else
          run_all(all.data(), wanted.data(), all.size());
        all.clear();
        wanted.clear();
      }
  }

  // By query (counting sort), then distance and fingerprint: what a caller of fpstore gets.
  void order(uint64_t query_count, int64_t* lims) {
    std::fill(lims, lims + query_count + 1, 0);
    for (const Match& m : matches) ++lims[m.query + 1];
    for (uint64_t q = 0; q < query_count; ++q) lims[q + 1] += lims[q];
    std::vector<int64_t> next(lims, lims + query_count);
    std::vector<Match> ordered(matches.size());
    for (const Match& m : matches) ordered[static_cast<size_t>(next[m.query]++)] = m;
    for (uint64_t q = 0; q < query_count; ++q)
      std::sort(ordered.begin() + lims[q], ordered.begin() + lims[q + 1],
                [](const Match& a, const Match& b) {
                  return a.distance != b.distance ? a.distance < b.distance
                                                  : a.fingerprint < b.fingerprint;
                });
    matches.swap(ordered);
  }
};

}  // namespace

extern "C" {

// Matches of all queries; lims has room for query_count + 1. Give what is returned to rival_take,
// once.
Search* rival_probe(const RivalTable* tables, uint32_t table_count, uint64_t entry_count,
                    const uint64_t* queries, uint64_t query_count, uint32_t radius, int64_t* lims) {
  Search* search = new Search;
  search->entry_count = entry_count;
  search->radius = radius;
  for (uint32_t t = 0; t < table_count; ++t) {
    Table table;
    table.from = tables + t;
    for (unsigned i = 0; i < 64; ++i) {
      table.forward.add(63u - tables[t].permutation[i], 63 - i);
      table.inverse.add(63 - i, 63u - tables[t].permutation[i]);
    }
    table.mask = top_mask(tables[t].prefix_bits);
    table.condition = table.inverse(table.mask);
    search->tables.push_back(table);
  }
  search->run(queries, query_count);
  search->order(query_count, lims);
  return search;
}

// Copies out the matches, as many as the last of lims says, and frees the search.
void rival_take(Search* search, uint64_t* fingerprints, uint8_t* distances) {
  size_t i = 0;
  for (const Match& m : search->matches) {
    fingerprints[i] = m.fingerprint;
    distances[i++] = static_cast<uint8_t>(m.distance);
  }
  delete search;
}
}
