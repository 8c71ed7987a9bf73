// The sorts and what stands beside them in a batch: each instruction set against std::stable_sort
// and plain loops, for every number of sorted bits, on scratch memory that is exactly as long as
// the contract says.
#include <algorithm>
#include <atomic>
#include <memory>
#include <tuple>

#include "build/numbered.hpp"
#include "format/xxh64.hpp"
#include "isa/kernels.hpp"
#include "rows.hpp"
#include "search/results.hpp"

using namespace fpstore;

namespace {

// Few keys most of the time; now and then as many as go past the sort in the cache.
size_t choose_size(fuzz::Input* input, fuzz::Scale scale, bool huge) {
  const unsigned choice = input->byte();
  const size_t more = input->word(2);
  if (huge) return 65535 + more % 500;
  if (scale == fuzz::Scale::large) return more % 1500;
  if (choice < 96) return more % 28;
  return more % (scale == fuzz::Scale::medium ? 300 : 100);
}

template <class W>
struct Sorting {
  using Row = typename W::Row;
  using Rows = std::vector<Row>;
  using Column = fuzz::Exact<Row>;
  using Sets = std::vector<const Kernels*>;

  // Keys with the shapes that sorts are sensitive to: shared bits in front or behind, few values,
  // runs.
  static Rows make_keys(size_t n, fuzz::Input* input) {
    const unsigned shape = input->byte();
    const unsigned shared = input->byte() % (W::kBits + 1),
                   kept = input->byte() * 7 % (W::kBits + 1);
    const Row base = fuzz::input_row<W>(input), same = fuzz::top_bits<W>(shared);
    fuzz::Random random(leading_word(base));
    Rows keys(n);
    for (size_t i = 0; i < n; ++i) {
      Row x = fuzz::random_row<W>(&random);
      if (shape & 1)
        x = input->left() ? fuzz::made_row<W>([&] { return input->word(1 + input->byte() % 8); })
                          : Row{};
      if (shape & 2) x = i && random.below(4) ? fuzz::plus<W>(keys[i - 1], random.below(3)) : x;
      if (shape & 4) x = fuzz::joined<W>(base & same, fuzz::without<W>(x, same));
      if (shape & 8) x = x & fuzz::top_bits<W>(kept);
      if (shape & 16) x = i && random.below(8) ? keys[random.below(static_cast<unsigned>(i))] : x;
      if (shape & 128 && random.below(2)) fuzz::word_at(x, 0) = leading_word(base);
      keys[i] = x;
    }
    if (shape & 32) std::sort(keys.begin(), keys.end());
    if (shape & 64) std::reverse(keys.begin(), keys.end());
    return keys;
  }

  // By the leading bits alone.
  static void stable_sort(Rows* keys, unsigned bits) {
    const Row mask = fuzz::top_bits<W>(bits);
    std::stable_sort(keys->begin(), keys->end(),
                     [&mask](const Row& a, const Row& b) { return (a & mask) < (b & mask); });
  }

  static void check_keys(const Sets& sets, const Rows& keys, unsigned bits) {
    Rows expected = keys;
    stable_sort(&expected, bits);
    for (const Kernels* set : sets) {
      const Column sorted(keys), tmp(keys);
      set->sort_keys(sorted.words(), tmp.words(), keys.size(), bits, nullptr);
      REQUIRE(sorted.starts_with(expected));
    }
  }

  static void check_pairs(const Sets& sets, const Rows& keys, uint64_t seed) {
    // The values tell where a pair came from, or repeat.
    fuzz::Random random(seed);
    std::vector<std::pair<Row, uint64_t>> expected;
    for (size_t i = 0; i < keys.size(); ++i)
      expected.emplace_back(keys[i], seed & 1 ? i : random.below(5));
    std::vector<uint64_t> pairs;
    for (const auto& [key, value] : expected) {
      for (unsigned k = 0; k < W::kWords; ++k) pairs.push_back(word_of(key, k));
      pairs.push_back(value);
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr size_t step = W::kWords + 1;
    std::unique_ptr<fuzz::Exact<uint64_t>> sorted;
    for (const Kernels* set : sets) {
      sorted.reset(new fuzz::Exact<uint64_t>(pairs));
      const fuzz::Exact<uint64_t> tmp(pairs);
      set->sort_pairs(sorted->words(), tmp.words(), keys.size(), nullptr);
      for (size_t i = 0; i < keys.size(); ++i)
        REQUIRE(*rows<Row>(sorted->words() + step * i) == expected[i].first &&
                sorted->p[step * i + W::kWords] == expected[i].second);
    }
    // The same rows in two columns, sorted; their groups: distinct keys, each with its distinct
    // values, ascending.
    std::vector<uint64_t> values;
    for (size_t i = 0; i < keys.size(); ++i) values.push_back(pairs[step * i + W::kWords]);
    const Column own(keys);
    const fuzz::Exact<uint64_t> numbers(values), counts(keys.size());
    const Numbered<Row, uint64_t> columns{own.p.get(), numbers.p.get()};
    const uint64_t end = keys.size();
    sort_numbered(columns, &end, 1, 0, nullptr);
    for (size_t i = 0; i < keys.size(); ++i)
      REQUIRE(own.p[i] == expected[i].first && numbers.p[i] == expected[i].second);
    size_t id_count = SIZE_MAX;
    const size_t groups = group_numbered(columns, keys.size(), counts.p.get(), &id_count, nullptr);
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    REQUIRE(id_count == expected.size());
    uint64_t at = 0;
    for (size_t g = 0; g < groups; ++g) {
      REQUIRE(counts.p[g] > 0 && (g == 0 || own.p[g - 1] < own.p[g]));
      for (uint64_t i = 0; i < counts.p[g]; ++i, ++at)
        REQUIRE(expected[at] == std::make_pair(own.p[g], numbers.p[at]));
    }
    REQUIRE(at == expected.size());
  }

  static void check_permuted(const Sets& sets, Rows keys, unsigned bits, fuzz::Input* input) {
    uint8_t source[W::kBits];
    const unsigned choice = input->byte();
    fuzz::Random random(choice);
    fuzz::shuffle(&random, source, W::kBits);
    if (choice < 128)
      for (unsigned i = 0; i < W::kBits; ++i)
        source[i] = static_cast<uint8_t>((i + choice) % W::kBits);
    Permutation forward, inverse;
    make_permutation(source, W::kBits, &forward, &inverse);
    std::sort(keys.begin(), keys.end());
    const size_t n = keys.size();
    Rows permuted(n);
    uint64_t digest = 0;
    for (size_t i = 0; i < n; ++i) {
      for (unsigned k = 0; k < W::kBits; ++k)
        if (fuzz::has_bit(keys[i], source[k]))
          permuted[i] = fuzz::joined<W>(permuted[i], fuzz::one_bit<W>(k));
      REQUIRE(apply(inverse, permuted[i]) == keys[i]);
      digest += xxh64(reinterpret_cast<const uint8_t*>(&keys[i]), sizeof(Row), 0);
    }
    Rows expected = permuted;
    stable_sort(&expected, bits);
    const Column in(keys), permuted_in(permuted);
    for (const Kernels* set : sets) {
      const Column out(n), tmp(n);
      set->permute(forward, in.words(), out.words(), n);
      REQUIRE(out.starts_with(permuted));
      REQUIRE(set->digest(inverse, permuted_in.words(), n) == digest);
      set->permute_sort(forward, in.words(), n, {out.words(), tmp.words()}, bits, nullptr);
      REQUIRE(out.starts_with(expected));
      REQUIRE(in.starts_with(keys));
    }
    check_parts(sets, in, permuted, forward, input);
  }

  // Counts and scatters of permuted keys by their leading bits, against plain loops. The parts have
  // gaps between them, which stay as they are, and two calls write to them, as two threads do.
  static void check_parts(const Sets& sets, const Column& in, const Rows& permuted,
                          const Permutation& forward, fuzz::Input* input) {
    const size_t n = permuted.size();
    const unsigned bits = input->byte() % 12;
    const size_t all = size_t{1} << bits;
    const auto part_of = [bits](const Row& row) {
      return static_cast<size_t>(bits ? leading_word(row) >> (64 - bits) : 0);
    };
    std::vector<uint64_t> counts(all);
    for (const Row& row : permuted) ++counts[part_of(row)];
    const size_t first = input->left() ? input->word(2) % (all + 1) : 0,
                 parts = input->left() ? input->word(2) % (all - first + 1) : all - first,
                 shift = input->byte() % 8, cut = n ? input->word(2) % (n + 1) : 0;
    fuzz::Random random(input->byte());
    std::vector<uint64_t> starts(parts);
    size_t room = 0;
    for (size_t d = 0; d < parts; ++d) {
      if (random.below(4) == 0) room += random.below(20);
      starts[d] = room;
      room += counts[first + d];
    }
    const size_t last = room;  // behind the last part
    room += random.below(10);
    const Rows untouched(shift + room, fuzz::top_bits<W>(W::kBits));
    Rows expected = untouched;
    std::vector<uint64_t> next = starts, middle;
    for (size_t i = 0; i <= n; ++i) {
      if (i == cut) middle = next;
      if (i == n) break;
      const size_t d = part_of(permuted[i]) - first;
      if (d < parts) expected[shift + next[d]++] = permuted[i];
    }
    const fuzz::Exact<uint64_t> from_start(starts), from_middle(middle),
        memory(kScatterWords * (parts + 1));
    for (const Kernels* set : sets) {
      const fuzz::Exact<uint64_t> counted(std::vector<uint64_t>(all, 7));
      set->count_permuted(forward, in.words(), n, bits, counted.words(), nullptr);
      for (size_t d = 0; d < all; ++d) REQUIRE(counted.p[d] == counts[d] + 7);
      const auto scatter = [&](size_t begin, size_t end, const fuzz::Exact<uint64_t>& to,
                               const Column& out) {
        return set->scatter_permuted(
            forward, in.words() + begin * W::kWords, end - begin,
            {bits, first, parts, to.words(), out.words() + shift * W::kWords, out.n - shift,
             memory.words()},
            nullptr);
      };
      const Column out(untouched);
      REQUIRE(scatter(0, cut, from_start, out) && scatter(cut, n, from_middle, out));
      REQUIRE(out.starts_with(expected));
      if (parts && starts.back() < last) {  // the last part has keys, and too little room
        const size_t less =
            starts.back() + random.below(static_cast<uint32_t>(last - starts.back()));
        const Column full(shift + less);
        REQUIRE(!scatter(0, n, from_start, full));
      }
    }
  }

  // Of any keys: the h of successive ones, up to the first that is out of order.
  static void check_histogram(const Sets& sets, const Rows& keys) {
    uint64_t expected[kSymbols] = {};
    size_t bad = keys.size();
    for (size_t i = 1; i < keys.size() && bad == keys.size(); ++i) {
      if (keys[i] <= keys[i - 1])
        bad = i;
      else
        ++expected[leading_word(keys[i - 1]) == leading_word(keys[i])
                       ? 64
                       : first_bit(leading_word(keys[i - 1]) ^ leading_word(keys[i]))];
    }
    const Column in(keys);
    for (const Kernels* set : sets) {
      uint64_t counts[kSymbols] = {};
      REQUIRE(set->histogram(in.words(), keys.size(), counts) == bad);
      if (bad == keys.size()) REQUIRE(std::equal(counts, counts + kSymbols, expected));
    }
  }

  // Matches in any order of their fingerprints come out by (query, distance, fingerprint).
  static void check_matches(const Rows& keys, uint64_t seed) {
    fuzz::Random random(seed);
    const uint32_t queries = 1 + random.below(9);
    std::vector<Match<Row>> found;
    for (const Row& key : keys)
      found.push_back(Match<Row>{key, random.below(queries), random.below(W::kBits + 1)});
    Sink sink;
    sink.matches = found.data();
    sink.count = sink.capacity = found.size();
    const size_t n = found.size();
    constexpr unsigned bytes = distance_bytes(W::kBits);
    const std::unique_ptr<int64_t[]> lims(new int64_t[queries + 1]);
    const Column fingerprints(n);
    const std::unique_ptr<uint8_t[]> distances(new uint8_t[n * bytes]);
    const unsigned threads = random.below(5);
    const auto order = [&](Stopper* stop) {
      return order_matches(sink, W::kWords, bytes, queries, lims.get(), fingerprints.words(),
                           distances.get(), threads, stop);
    };
    const std::atomic<bool> wanted{true};
    Stopper stop;
    stop.wanted = &wanted;
    const Status stopped = order(&stop);
    // Other threads may have done all before this one looks at its stop.
    REQUIRE(stopped == Status::interrupted || (stopped == Status::ok && (n < 256 || threads > 1)));
    REQUIRE(order(nullptr) == Status::ok);
    std::sort(found.begin(), found.end(), [](const Match<Row>& a, const Match<Row>& b) {
      return std::make_tuple(a.query, a.distance, a.fingerprint) <
             std::make_tuple(b.query, b.distance, b.fingerprint);
    });
    REQUIRE(lims[0] == 0 && lims[queries] == static_cast<int64_t>(n));
    for (uint32_t q = 0; q < queries; ++q)
      for (int64_t i = lims[q]; i < lims[q + 1]; ++i) {
        const Match<Row>& m = found[static_cast<size_t>(i)];
        const uint8_t* const distance = distances.get() + static_cast<size_t>(i) * bytes;
        REQUIRE(m.query == q && m.fingerprint == fingerprints.p[i] &&
                m.distance == (bytes == 1 ? *distance : load16(distance)));
      }
  }

  static void run(fuzz::Input& input, const uint8_t* data, size_t size) {
    static const Sets all = fuzz::all_kernels(W::kBits);
    const unsigned what = input.byte();
    const fuzz::Chance chance(data, size);
    const Sets sets = chance.sets(all);
    // Wide rows are sorted by bits of the leading word, or by all.
    const unsigned choice = input.byte() % (W::kWide ? 97 : 65),
                   bits = choice <= 64 ? choice : W::kBits;
    const size_t n = choose_size(&input, chance.scale(), chance.one_in(8192));
    const Rows keys = make_keys(n, &input);
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        check_keys(sets, keys, bits);
        break;
      case 3:
        check_pairs(sets, keys, what);
        break;
      case 4:
      case 5:
        check_permuted(sets, keys, bits ? bits : 1, &input);
        break;
      case 6:
        check_histogram(sets, keys);
        break;
      default:
        check_matches(keys, what + bits);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  fuzz::with_width(input.byte(),
                   [&](auto width) { Sorting<decltype(width)>::run(input, data, size); });
  return 0;
}
