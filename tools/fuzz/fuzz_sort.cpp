// The sorts and what stands beside them in a batch: each instruction set against std::stable_sort and plain loops, for every number
// of sorted bits, on scratch memory that is exactly as long as the contract says.
#include <algorithm>
#include <memory>
#include <tuple>

#include "format/xxh64.hpp"
#include "input.hpp"
#include "isa/kernels.hpp"
#include "search/results.hpp"

using namespace fpstore;

namespace {

using Words = std::vector<uint64_t>;

// An exact allocation, so that a write past its end is seen.
std::unique_ptr<uint64_t[]> exactly(const Words& words) {
  std::unique_ptr<uint64_t[]> p(new uint64_t[words.size()]);
  std::copy(words.begin(), words.end(), p.get());
  return p;
}

bool same(const std::unique_ptr<uint64_t[]>& p, const Words& words) { return std::equal(words.begin(), words.end(), p.get()); }

// Few keys most of the time; now and then as many as go past the sort in the cache.
size_t choose_size(fuzz::Input* input, fuzz::Scale scale, bool huge) {
  const unsigned choice = input->byte();
  const size_t more = input->word(2);
  if (huge) return 65535 + more % 500;
  if (scale == fuzz::Scale::large) return more % 1500;
  if (choice < 96) return more % 28;
  return more % (scale == fuzz::Scale::medium ? 300 : 100);
}

// Keys with the shapes that sorts are sensitive to: shared bits in front or behind, few values, runs.
Words make_keys(size_t n, fuzz::Input* input) {
  const unsigned shape = input->byte();
  const unsigned shared = input->byte() % 65, kept = input->byte() % 65;
  const uint64_t base = input->word();
  fuzz::Random random(base);
  Words keys(n);
  for (size_t i = 0; i < n; ++i) {
    uint64_t x = random.next();
    if (shape & 1) x = input->left() ? input->word(1 + input->byte() % 8) : random.below(7);
    if (shape & 2) x = i && random.below(4) ? keys[i - 1] + random.below(3) : x;
    if (shape & 4) x = (base & top_mask(shared)) | (x & ~top_mask(shared));
    if (shape & 8) x &= top_mask(kept);
    if (shape & 16) x = i && random.below(8) ? keys[random.below(static_cast<unsigned>(i))] : x;
    keys[i] = x;
  }
  if (shape & 32) std::sort(keys.begin(), keys.end());
  if (shape & 64) std::reverse(keys.begin(), keys.end());
  return keys;
}

void check_keys(const std::vector<const Kernels*>& sets, const Words& keys, unsigned bits) {
  Words expected = keys;
  const uint64_t mask = top_mask(bits);
  std::stable_sort(expected.begin(), expected.end(), [mask](uint64_t a, uint64_t b) { return (a & mask) < (b & mask); });
  for (const Kernels* set : sets) {
    const auto sorted = exactly(keys), tmp = exactly(keys);
    set->sort_keys(sorted.get(), tmp.get(), keys.size(), bits, nullptr);
    REQUIRE(same(sorted, expected));
  }
}

void check_pairs(const std::vector<const Kernels*>& sets, const Words& keys, uint64_t seed) {
  // The values tell where a pair came from, or repeat.
  fuzz::Random random(seed);
  Words pairs;
  for (size_t i = 0; i < keys.size(); ++i) {
    pairs.push_back(keys[i]);
    pairs.push_back(seed & 1 ? i : random.below(5));
  }
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  for (size_t i = 0; i < keys.size(); ++i) expected.emplace_back(pairs[2 * i], pairs[2 * i + 1]);
  std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::unique_ptr<uint64_t[]> sorted;
  for (const Kernels* set : sets) {
    sorted = exactly(pairs);
    const auto tmp = exactly(pairs);
    set->sort_pairs(sorted.get(), tmp.get(), keys.size(), nullptr);
    for (size_t i = 0; i < keys.size(); ++i) REQUIRE(sorted[2 * i] == expected[i].first && sorted[2 * i + 1] == expected[i].second);
  }
  // The groups of the sorted pairs: distinct keys, each with its distinct values, ascending.
  const std::unique_ptr<uint64_t[]> group_keys(new uint64_t[keys.size()]), ids(new uint64_t[keys.size()]);
  uint64_t id_count = UINT64_MAX;
  const uint64_t groups = group_pairs(sorted.get(), keys.size(), group_keys.get(), ids.get(), &id_count, nullptr);
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  REQUIRE(id_count == expected.size());
  uint64_t at = 0;
  for (uint64_t g = 0; g < groups; ++g) {
    REQUIRE(sorted[g] > 0 && (g == 0 || group_keys[g - 1] < group_keys[g]));
    for (uint64_t i = 0; i < sorted[g]; ++i, ++at) REQUIRE(expected[at] == std::make_pair(group_keys[g], ids[at]));
  }
  REQUIRE(at == expected.size());
}

void check_permuted(const std::vector<const Kernels*>& sets, Words keys, unsigned bits, fuzz::Input* input) {
  uint8_t source[64];
  const unsigned choice = input->byte();
  fuzz::Random random(choice);
  fuzz::shuffle(&random, source);
  if (choice < 128)
    for (unsigned i = 0; i < 64; ++i) source[i] = static_cast<uint8_t>((i + choice) % 64);
  Permutation forward, inverse;
  make_permutation(source, &forward, &inverse);
  std::sort(keys.begin(), keys.end());
  const size_t n = keys.size();
  Words permuted(n), expected;
  for (size_t i = 0; i < n; ++i) {
    for (unsigned k = 0; k < 64; ++k) permuted[i] |= (keys[i] >> (63 - source[k]) & 1) << (63 - k);
    REQUIRE(apply(inverse, permuted[i]) == keys[i]);
  }
  expected = permuted;
  const uint64_t mask = top_mask(bits);
  std::stable_sort(expected.begin(), expected.end(), [mask](uint64_t a, uint64_t b) { return (a & mask) < (b & mask); });
  uint64_t low = n ? permuted[input->word(2) % n] : 0, high = input->byte() & 1 ? UINT64_MAX : input->word();
  if (low > high) std::swap(low, high);
  Words selected;
  for (const uint64_t x : permuted)
    if (low <= x && x <= high) selected.push_back(x);
  uint64_t digest = 0;
  for (const uint64_t x : keys) digest += xxh64_u64(x);
  const auto in = exactly(keys), permuted_in = exactly(permuted);
  for (const Kernels* set : sets) {
    const std::unique_ptr<uint64_t[]> out(new uint64_t[n]), tmp(new uint64_t[n]);
    set->permute(forward, in.get(), out.get(), n);
    REQUIRE(same(out, permuted));
    REQUIRE(set->permute_select(forward, in.get(), out.get(), n, low, high) == selected.size());
    REQUIRE(same(out, selected));
    REQUIRE(set->digest(inverse, permuted_in.get(), n) == digest);
    set->permute_sort(forward, in.get(), n, {out.get(), tmp.get()}, bits, nullptr);
    REQUIRE(same(out, expected));
    REQUIRE(same(in, keys));
  }
}

// Of any keys: the h of successive ones, up to the first that is out of order.
void check_histogram(const std::vector<const Kernels*>& sets, const Words& keys) {
  uint64_t expected[kSymbols] = {};
  size_t bad = keys.size();
  for (size_t i = 1; i < keys.size() && bad == keys.size(); ++i) {
    if (keys[i - 1] >= keys[i]) bad = i;
    else ++expected[first_bit(keys[i - 1] ^ keys[i])];
  }
  const auto in = exactly(keys);
  for (const Kernels* set : sets) {
    uint64_t counts[kSymbols] = {};
    REQUIRE(set->histogram(in.get(), keys.size(), counts) == bad);
    if (bad == keys.size()) REQUIRE(std::equal(counts, counts + kSymbols, expected));
  }
}

// Matches in any order of their fingerprints come out by (query, distance, fingerprint).
void check_matches(const Words& keys, uint64_t seed) {
  fuzz::Random random(seed);
  const uint32_t queries = 1 + random.below(9);
  std::vector<Match> matches;
  for (const uint64_t key : keys) matches.push_back(Match{key, random.below(queries), random.below(65)});
  Sink sink;
  sink.matches = matches.data();
  sink.count = sink.capacity = matches.size();
  const size_t n = matches.size();
  const std::unique_ptr<int64_t[]> lims(new int64_t[queries + 1]);
  const std::unique_ptr<uint64_t[]> fingerprints(new uint64_t[n]);
  const std::unique_ptr<uint8_t[]> distances(new uint8_t[n]);
  REQUIRE(order_matches(sink, queries, lims.get(), fingerprints.get(), distances.get(), nullptr) == Status::ok);
  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) {
    return std::make_tuple(a.query, a.distance, a.fingerprint) < std::make_tuple(b.query, b.distance, b.fingerprint);
  });
  REQUIRE(lims[0] == 0 && lims[queries] == static_cast<int64_t>(n));
  for (uint32_t q = 0; q < queries; ++q)
    for (int64_t i = lims[q]; i < lims[q + 1]; ++i) {
      const Match& m = matches[static_cast<size_t>(i)];
      REQUIRE(m.query == q && m.fingerprint == fingerprints[i] && m.distance == distances[i]);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<const Kernels*> all = fuzz::all_kernels();
  fuzz::Input input(data, size);
  const unsigned what = input.byte();
  const fuzz::Chance chance(data, size);
  const std::vector<const Kernels*> sets = chance.sets(all);
  const unsigned bits = input.byte() % 65;
  const size_t n = choose_size(&input, chance.scale(), chance.one_in(8192));
  const Words keys = make_keys(n, &input);
  switch (what % 8) {
    case 0:
    case 1:
    case 2: check_keys(sets, keys, bits); break;
    case 3: check_pairs(sets, keys, what); break;
    case 4:
    case 5: check_permuted(sets, keys, bits, &input); break;
    case 6: check_histogram(sets, keys); break;
    default: check_matches(keys, what + bits);
  }
  return 0;
}
