// Streaming merges: against sets and maps when the input is sorted; whatever the input, nothing is
// written past the room that the contract asks for. Places of ids in records, against a look at
// every id.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "build/merge.hpp"
#include "format/xxh64.hpp"
#include "rows.hpp"

using namespace fpstore;

namespace {

using Words = std::vector<uint64_t>;

// A column of words, of exactly its length.
using Exact = fuzz::Exact<uint64_t>;

template <class W>
struct Merging {
  using Row = typename W::Row;
  using Rows = std::vector<Row>;
  using Column = fuzz::Exact<Row>;

  // A set, or with order broken now and then any list, whose members meet those of others.
  static Rows make_keys(fuzz::Input* input, bool sorted) {
    const unsigned shape = input->byte();
    size_t n = input->byte() % 40;
    if (shape >= 250) n *= 20;  // long runs
    const uint64_t step = 1 + (shape & 4 ? input->byte() : 0);
    const bool far = shape & 8, tied = shape & 32;
    fuzz::Random random(input->byte());
    Rows keys;
    uint64_t number = shape & 1 ? 0 : input->byte();
    for (; n; --n) {
      // Small numbers in one of the words, and perhaps another behind: keys that tie in their
      // leading words, and keys that meet.
      Row x{};
      fuzz::word_at(x, tied ? W::kWords - 1 : 0) = W::kBits < 64 ? number << 32 : number;
      if (far && tied) fuzz::word_at(x, 0) = number >> 4 << 32;
      keys.push_back(x);
      number += 1 + random.below(static_cast<unsigned>(step));
      if (far && random.below(6) == 0) number += random.next() >> random.below(64);
    }
    if (shape & 2 && !keys.empty()) keys.back() = fuzz::top_bits<W>(W::kBits);
    if (!sorted) {
      if (shape & 16)
        for (Row& key : keys) fuzz::word_at(key, 0) = input->byte();
      return keys;
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  struct Grouped {
    Rows keys;
    Words counts, ids;
  };

  static Grouped make_groups(fuzz::Input* input, bool sorted, bool ids_sorted) {
    Grouped g;
    g.keys = make_keys(input, sorted);
    const unsigned most = 1 + input->byte() % 4;
    fuzz::Random random(input->byte());
    for (size_t i = 0; i < g.keys.size(); ++i) {
      std::set<uint64_t> ids;
      for (unsigned k = random.below(most) + random.below(2); k; --k) ids.insert(random.below(30));
      g.counts.push_back(ids.size());
      g.ids.insert(g.ids.end(), ids.begin(), ids.end());
      if (!ids_sorted && random.below(3) == 0)
        std::reverse(g.ids.end() - static_cast<std::ptrdiff_t>(ids.size()), g.ids.end());
    }
    return g;
  }

  struct GroupColumns {
    Column keys;
    Exact counts, ids;
    explicit GroupColumns(const Grouped& g) : keys(g.keys), counts(g.counts), ids(g.ids) {}
    Groups view() const { return Groups{view_of(keys), counts.p.get(), ids.p.get(), ids.n}; }
  };

  static Keys view_of(const Column& keys) { return Keys{keys.words(), keys.n, W::kWords}; }

  using Map = std::map<Row, Words>;

  static Map map_of(const Grouped& g) {
    Map map;
    size_t at = 0;
    for (size_t i = 0; i < g.keys.size(); ++i, at += g.counts[i - 1])
      map[g.keys[i]] = Words(g.ids.begin() + static_cast<std::ptrdiff_t>(at),
                             g.ids.begin() + static_cast<std::ptrdiff_t>(at + g.counts[i]));
    return map;
  }

  // What the two columns of room hold must be the map.
  static void check_out(const GroupsOut& out, const Column& keys, const Exact& counts,
                        const Exact& ids, const Map& expected) {
    REQUIRE(out.n == expected.size());
    size_t i = 0, at = 0;
    for (const auto& [key, list] : expected) {
      REQUIRE(keys.p[i] == key && counts.p[i] == list.size());
      REQUIRE(at + list.size() <= out.id_count &&
              std::equal(list.begin(), list.end(), ids.p.get() + at));
      at += list.size();
      ++i;
    }
    REQUIRE(at == out.id_count);
  }

  static void check_keys(fuzz::Input* input, bool sorted) {
    const Rows keys = make_keys(input, sorted), drop = make_keys(input, sorted),
               add = make_keys(input, sorted);
    const Column k(keys), d(drop), a(add), out(keys.size() + add.size());
    const size_t n = merge_keys(view_of(k), view_of(d), view_of(a), out.words());
    REQUIRE(n <= out.n);
    if (!sorted) return;
    std::set<Row> expected(keys.begin(), keys.end());
    for (const Row& x : drop) expected.erase(x);
    expected.insert(add.begin(), add.end());
    REQUIRE(out.first(n) == Rows(expected.begin(), expected.end()));
  }

  static void check_merge(fuzz::Input* input, bool sorted) {
    const Grouped groups = make_groups(input, sorted, true), add = make_groups(input, sorted, true);
    Rows drop = make_keys(input, sorted);
    if (sorted && input->byte() & 1) {
      // What is to be added anew is dropped first, as a merge of a store does it.
      std::set<Row> all(drop.begin(), drop.end());
      all.insert(add.keys.begin(), add.keys.end());
      drop.assign(all.begin(), all.end());
    }
    const GroupColumns g(groups), a(add);
    const Column d(drop), keys(g.keys.n + a.keys.n);
    const Exact counts(keys.n), ids(g.ids.n + a.ids.n);
    GroupsOut out{keys.words(), counts.p.get(), ids.p.get()};
    const bool fine = merge_groups(g.view(), view_of(d), a.view(), &out);
    REQUIRE(out.n <= keys.n && out.id_count <= ids.n);
    if (!sorted) return;
    Map expected = map_of(groups);
    for (const Row& x : drop) expected.erase(x);
    bool meet = false;
    for (const auto& [key, list] : map_of(add)) meet = !expected.emplace(key, list).second || meet;
    REQUIRE(fine == !meet);
    if (fine) check_out(out, keys, counts, ids, expected);
  }

  static void check_union(fuzz::Input* input, bool sorted, bool ids_sorted) {
    const Grouped first = make_groups(input, sorted, ids_sorted),
                  second = make_groups(input, sorted, ids_sorted);
    const GroupColumns a(first), b(second);
    const Column keys(a.keys.n + b.keys.n);
    const Exact counts(keys.n), ids(a.ids.n + b.ids.n);
    GroupsOut out{keys.words(), counts.p.get(), ids.p.get()};
    const bool fine = union_groups(a.view(), b.view(), &out);
    REQUIRE(out.n <= keys.n && out.id_count <= ids.n);
    if (!sorted) return;
    Map expected = map_of(first);
    bool ascend = true;
    for (auto& [key, list] : map_of(second)) {
      const auto [place, fresh] = expected.emplace(key, list);
      if (fresh) continue;
      for (const Words* ids_of : {&place->second, &list})
        ascend = ascend && strictly_ascending(Keys{ids_of->data(), ids_of->size()});
      std::set<uint64_t> both(list.begin(), list.end());
      both.insert(place->second.begin(), place->second.end());
      place->second.assign(both.begin(), both.end());
    }
    REQUIRE(fine == ascend);
    if (fine) check_out(out, keys, counts, ids, expected);
  }

  // Lengths and order are told apart, sums that wrap too.
  static void check_fault(fuzz::Input* input) {
    Grouped g = make_groups(input, input->byte() & 1, true);
    const unsigned change = input->byte();
    if (change < 100 && !g.counts.empty())
      g.counts[input->byte() % g.counts.size()] +=
          change < 50 ? ~uint64_t{0} : uint64_t{1} << change % 64;
    if (change >= 60 && change < 100 && !g.counts.empty())
      g.counts[0] -= uint64_t{1} << change % 64;
    unsigned __int128 total = 0;
    for (const uint64_t count : g.counts) total += count;
    const bool right = total == g.ids.size() && std::adjacent_find(g.keys.begin(), g.keys.end(),
                                                                   [](const Row& a, const Row& b) {
                                                                     return b <= a;
                                                                   }) == g.keys.end();
    const GroupColumns columns(g);
    REQUIRE((fault_of(columns.view()) == nullptr) == right);
  }
};

// Records of several blocks, packed or of input bytes under a right checksum.
void check_find(fuzz::Input* input) {
  const uint64_t seed = input->word(2), first_block = input->byte();
  const unsigned n = 1 + input->byte() % 4;
  std::vector<std::unique_ptr<uint8_t[]>> kept;
  std::vector<RecordBytes> records;
  Words keys;
  for (unsigned r = 0; r < n; ++r) {
    keys.push_back(input->word(2));
    const unsigned shape = input->byte();
    uint64_t size;
    if (shape & 1) {
      Words ids, lims{0};
      const uint64_t base = input->word(shape & 2 ? 8 : 1);
      for (unsigned count = 1 + input->byte() % 20; count; --count) {
        uint64_t id = base + input->byte() % 64;
        for (unsigned k = 1 + input->byte() % 3;
             k && (ids.size() == lims.back() || id > ids.back()); --k)
          ids.push_back(id++);
        lims.push_back(ids.size());
      }
      std::vector<uint64_t> counts(lims.size() - 1);
      for (size_t i = 0; i < counts.size(); ++i) counts[i] = lims[i + 1] - lims[i];
      std::vector<uint8_t> record;
      REQUIRE(pack_record(ids.data(), counts.data(), counts.size(), seed + keys[r], &record) ==
              ids.size());
      size = record.size();
      kept.emplace_back(new uint8_t[size]);
      memcpy(kept.back().get(), record.data(), size);
    } else {
      size = input->byte() % 120;
      kept.emplace_back(new uint8_t[size]());
      input->fill(kept.back().get(), size);
      if (size >= 4)
        store32(kept.back().get(),
                static_cast<uint32_t>(xxh64(kept.back().get() + 4, size - 4, seed + keys[r])));
    }
    records.push_back(RecordBytes{kept.back().get(), size});
  }
  std::vector<IdRecord> opened;
  Fault fault;
  const Status status = open_records(records, first_block, keys.data(), seed, &opened, &fault);
  if (status != Status::ok) {
    REQUIRE(fault.status == status && fault.block >= first_block && fault.block < first_block + n);
    return;
  }
  uint64_t total = 0;
  for (const IdRecord& record : opened) total += record.total;
  if (total > 5000) return;
  std::set<uint64_t> wanted;
  for (unsigned k = input->byte() % 12; k; --k) {
    const IdRecord& record = opened[input->byte() % n];
    wanted.insert(record.total && input->byte() < 200 ? id_at(record, input->byte() % record.total)
                                                      : input->word());
  }
  const Words list(wanted.begin(), wanted.end());
  const std::vector<Place> found = find_ids(opened, first_block, list.data(), list.size());
  size_t at = 0;
  for (unsigned r = 0; r < n; ++r) {
    uint64_t place = 0;
    for (uint32_t rank = 0; rank < opened[r].count; ++rank)
      for (uint64_t k = count_at(opened[r], rank); k; --k, ++place) {
        const uint64_t id = id_at(opened[r], place);
        if (!wanted.count(id)) continue;
        REQUIRE(at < found.size() && found[at].block == first_block + r && found[at].rank == rank &&
                found[at].id == id);
        ++at;
      }
  }
  REQUIRE(at == found.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const unsigned what = input.byte();
  const bool sorted = what < 208;
  if (what % 6 > 3) {
    check_find(&input);
    return 0;
  }
  fuzz::with_width(input.byte(), [&](auto width) {
    using Case = Merging<decltype(width)>;
    switch (what % 6) {
      case 0:
        Case::check_keys(&input, sorted);
        break;
      case 1:
        Case::check_merge(&input, sorted);
        break;
      case 2:
        Case::check_union(&input, sorted, what % 12 == 2);
        break;
      default:
        Case::check_fault(&input);
    }
  });
  return 0;
}
