// Fingerprints of texts: whatever the bytes, nothing outside them is read; those of valid texts are what a slow oracle finds, with
// any map of characters.
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "input.hpp"
#include "text/simhash.hpp"

using namespace fpstore;

namespace {

constexpr unsigned kPages = 3;  // of code points that texts have, from 0
constexpr uint32_t kPoolBytes = 80;

// What each code point of some pages becomes.
struct Map {
  explicit Map(fuzz::Input* input) : pages(kCodePoints / kPagePoints, -1), entries(kPages * kPagePoints), pool(kPoolBytes) {
    for (uint8_t& byte : pool) byte = "ab cdefghij klmn"[input->byte() % 16];
    for (unsigned c = 0; c < 128; ++c) {
      const uint8_t drawn = input->byte();
      ascii[c] = drawn < 10 ? kRemovedByte : drawn < 60 ? ' ' : c;
    }
    for (unsigned page = 0; page < kPages; ++page) pages[page] = static_cast<int32_t>(page);
    for (uint32_t& entry : entries) {
      const uint32_t kind = input->byte() % 6;
      if (kind == static_cast<uint32_t>(CharKind::replaced)) {
        const uint32_t size = input->byte() % 8;
        entry = kind << kKindShift | size << kFormShift | static_cast<uint32_t>(input->byte() % (kPoolBytes - size));
      } else {
        entry = kind << kKindShift | (input->byte() < 32 ? input->byte() % 3 : 0);
      }
    }
  }
  CharMap view() const { return {ascii, pages.data(), entries.data(), pool.data()}; }

  uint8_t ascii[128];
  std::vector<int32_t> pages;
  std::vector<uint32_t> entries;
  std::vector<uint8_t> pool;
};

std::string utf8(uint32_t point) {
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

// The units of a text by the words of text/normal.hpp; false when a character depends on its neighbours.
bool slow_form(const Map& map, const std::vector<uint32_t>& points, std::string* form) {
  std::string all;
  unsigned before = 0;
  for (const uint32_t point : points) {
    if (point < 0x80) {
      if (map.ascii[point] != kRemovedByte) all += static_cast<char>(map.ascii[point]);
      before = 0;
      continue;
    }
    const uint32_t entry = map.entries[point];
    unsigned combining = entry & 0xFF;
    switch (static_cast<CharKind>(entry >> kKindShift)) {
      case CharKind::same:
        all += utf8(point);
        break;
      case CharKind::unit:
        all += " " + utf8(point) + " ";
        break;
      case CharKind::space:
        all += ' ';
        break;
      case CharKind::removed:
        break;
      case CharKind::replaced:
        all.append(reinterpret_cast<const char*>(map.pool.data()) + (entry & kPlaceMask), entry >> kFormShift & kFormMask);
        combining = 0xFF;
        break;
      default:
        return false;
    }
    if (combining && combining != 0xFF && before > combining) return false;
    before = combining;
  }
  for (const char c : all)
    if (c != ' ' || (!form->empty() && form->back() != ' ')) *form += c;
  if (!form->empty() && form->back() == ' ') form->pop_back();
  return true;
}

std::vector<std::string> units_of(const std::string& form, bool words) {
  std::vector<std::string> units(form.empty() ? 0 : 1);
  for (size_t i = 0; i < form.size(); ++i) {
    const bool starts = words ? form[i] == ' ' : i && (form[i] & 0xC0) != 0x80;
    if (starts) units.emplace_back();
    if (!words || form[i] != ' ') units.back() += form[i];
  }
  return units;
}

bool has(const std::vector<uint64_t>& hashes, uint64_t hash) { return std::find(hashes.begin(), hashes.end(), hash) != hashes.end(); }

using Sums = std::array<int64_t, 64 * kMostRowWords>;

// Adds the features of a text. Returns what they weigh.
uint64_t slow_sums(const std::string& form, const SimhashOptions& options, const std::vector<uint64_t>& stops, uint64_t times,
                   Sums* sums) {
  const std::vector<std::string> units = units_of(form, options.words);
  const auto hash_of = [&](const std::string& text) {
    return feature_hash(options.hash, reinterpret_cast<const uint8_t*>(text.data()), text.size(), options.seed);
  };
  std::map<uint64_t, uint64_t> counts;
  const size_t size = std::min<size_t>(options.length, units.size());
  for (size_t i = 0; size && i + size <= units.size(); ++i) {
    std::string shingle;
    bool stop = stops.empty() || !options.words;
    for (size_t j = i; j < i + size; ++j) {
      if (j > i && options.words) shingle += ' ';
      shingle += units[j];
      stop |= has(stops, hash_of(units[j]));
    }
    if (stop) ++counts[hash_of(shingle)];
  }
  uint64_t total = 0;
  for (const auto& [hash, count] : counts) {
    uint64_t weight = count;
    if (options.counting == Counting::distinct) weight = 1;
    if (options.counting == Counting::log)
      for (weight = 0; count >> weight;) ++weight;
    uint64_t factor = options.weights.other, words[kMostRowWords];
    for (size_t i = 0; i < options.weights.count; ++i)
      if (options.weights.hashes[i] == hash) factor = options.weights.weights[i];
    weight *= factor * times;
    total += weight;
    feature_row(hash, options.row_words, words);
    for (unsigned b = 0; b < 64 * options.row_words; ++b)
      (*sums)[b] += words[b / 64] >> b % 64 & 1 ? static_cast<int64_t>(weight) : -static_cast<int64_t>(weight);
  }
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  SimhashOptions options{};
  options.words = input.byte() & 1;
  options.length = 1 + input.byte() % 4;
  options.counting = static_cast<Counting>(input.byte() % 3);
  options.hash = static_cast<FeatureHash>(input.byte() % 2);
  options.seed = input.byte();
  options.row_words = 1u << input.byte() % 3;
  const bool valid = input.byte() % 4, weighted = input.byte() % 2, stopped = input.byte() % 4 == 0;
  const unsigned rows = 1 + input.byte() % 3;
  std::vector<uint32_t> fields(1 + input.byte() % 3);
  for (uint32_t& weight : fields) weight = 1 + input.word(2) % kMostWeight;
  options.field_count = static_cast<unsigned>(fields.size());
  options.field_weights = fields.data();
  fuzz::Input drawn = input;
  const Map map(&drawn);

  std::vector<std::vector<uint32_t>> points(rows * fields.size());
  std::string whole;
  std::vector<uint64_t> offsets{0};
  for (std::vector<uint32_t>& text : points) {
    for (unsigned left = input.word(2) % 300; left && input.left(); --left) {
      const uint32_t point = input.byte() < 128 ? "ab c"[input.byte() % 4] : input.word(2) % (kPages * kPagePoints);
      text.push_back(point);
      whole += valid ? utf8(point) : std::string(1, static_cast<char>(point));
    }
    offsets.push_back(whole.size());
  }
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[whole.size()]);  // in memory of just that size
  std::copy(whole.begin(), whole.end(), bytes.get());

  std::vector<uint64_t> stops, hashes;
  std::vector<uint32_t> weights;
  if (stopped) stops = {feature_hash(options.hash, reinterpret_cast<const uint8_t*>("a"), 1, options.seed)};
  if (weighted) {
    hashes = {feature_hash(options.hash, reinterpret_cast<const uint8_t*>("b"), 1, options.seed)};
    weights = {input.byte()};
    options.weights = {hashes.data(), weights.data(), 1, static_cast<uint32_t>(input.byte() % 5)};
  }
  options.stops = stops.data();
  options.stop_count = stops.size();

  std::vector<uint64_t> found(rows * options.row_words);
  std::vector<TextState> states(rows);
  std::vector<bool> missing(kCodePoints / kPagePoints);
  REQUIRE(simhash_texts(map.view(), bytes.get(), offsets.data(), rows, options, found.data(), states.data(), &missing));
  if (!valid) return 0;
  for (unsigned i = 0; i < rows; ++i) {
    Sums sums{};
    uint64_t total = 0;
    bool readable = true;
    for (unsigned f = 0; f < fields.size(); ++f) {
      std::string form;
      readable &= slow_form(map, points[i * fields.size() + f], &form);
      total += slow_sums(form, options, stops, fields.size() > 1 ? fields[f] : 1, &sums);
    }
    if (!readable) {
      REQUIRE(states[i] == TextState::unknown);
    } else if (!total) {
      REQUIRE(states[i] == TextState::empty);
    } else {
      REQUIRE(states[i] == TextState::known);
      for (unsigned b = 0; b < 64 * options.row_words; ++b)
        REQUIRE((found[i * options.row_words + b / 64] >> b % 64 & 1) == uint64_t{sums[b] > 0});
    }
  }
  return 0;
}
