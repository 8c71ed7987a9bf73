// Fingerprints of texts: whatever the bytes, nothing outside them is read; those of valid texts are
// what a slow oracle finds, with any map of characters, and with passages in the place of lines
// that depend on neighbours.
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "input.hpp"
#include "text/minhash.hpp"
#include "text/simhash.hpp"

using namespace fpstore;

namespace {

constexpr unsigned kPages = 3;  // of code points that texts have; the last one is kLastPage
constexpr unsigned kLastPage = 0x4E;
constexpr unsigned kLine = '\n';
constexpr uint32_t kPoolBytes = 80;
constexpr char kPassage[] = " b  \xC3\xA4 ";  // the form of each line that depends on neighbours,
                                              // and of texts of which nothing is left
constexpr char kPassageForm[] = "b \xC3\xA4";

// What each code point of some pages becomes.
struct Map {
  explicit Map(fuzz::Input* input)
      : pages(kCodePoints / kPagePoints, -1), entries(kPages * kPagePoints), pool(kPoolBytes) {
    for (uint8_t& byte : pool) byte = "ab cdefghij klmn"[input->byte() % 16];
    for (unsigned c = 0; c < 128; ++c) {
      const uint8_t drawn = input->byte();
      ascii[c] = drawn < 6 ? kIgnoredByte : drawn < 12 ? kRemovedByte : drawn < 60 ? ' ' : c;
    }
    if (ascii[kLine] == kIgnoredByte) ascii[kLine] = ' ';  // lines are cut there
    for (unsigned page = 0; page < kPages - 1; ++page) pages[page] = static_cast<int32_t>(page);
    pages[kLastPage] = kPages - 1;
    for (uint32_t& entry : entries) {
      const uint32_t kind = input->byte() % 7;
      if (kind == static_cast<uint32_t>(CharKind::replaced)) {
        const uint32_t size = input->byte() % 8;
        entry = kind << kKindShift | size << kFormShift |
                static_cast<uint32_t>(input->byte() % (kPoolBytes - size));
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

// The character of an entry.
std::string utf8(uint32_t place) {
  uint32_t point = place;
  if (place / kPagePoints == kPages - 1) point = kLastPage * kPagePoints + place % kPagePoints;
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  if (point >= 0x800)
    return {static_cast<char>(0xE0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 0x3F)),
            static_cast<char>(0x80 | (point & 0x3F))};
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

// The form of a line by the words of text/normal.hpp; false when a character depends on its
// neighbours.
bool slow_line(const Map& map, const std::vector<uint32_t>& points, std::string* form) {
  std::string& all = *form;
  unsigned before = 0;
  for (const uint32_t point : points) {
    if (point < 0x80) {
      if (map.ascii[point] == kIgnoredByte) continue;
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
      case CharKind::ignored:
        continue;
      case CharKind::replaced:
        all.append(reinterpret_cast<const char*>(map.pool.data()) + (entry & kPlaceMask),
                   entry >> kFormShift & kFormMask);
        combining = 0xFF;
        break;
      default:
        return false;
    }
    if (combining && combining != 0xFF && before > combining) return false;
    before = combining;
  }
  return true;
}

struct SlowText {
  std::string form;      // units with one space between two
  std::string settled;   // the text with passages
  bool readable = true;  // without them
};

SlowText slow_text(const Map& map, const std::vector<uint32_t>& points) {
  SlowText out;
  std::string all, given;
  std::vector<uint32_t> line;
  for (size_t i = 0; i <= points.size(); ++i) {
    if (i < points.size() && points[i] != kLine) {
      line.push_back(points[i]);
      given += utf8(points[i]);
      continue;
    }
    std::string form;
    if (!slow_line(map, line, &form)) {
      out.readable = false;
      form = kPassage;
      given = '\xFF' + form + '\xFF';
    }
    all += form;
    out.settled += given;
    if (i < points.size()) {
      if (map.ascii[kLine] < kIgnoredByte) all += static_cast<char>(map.ascii[kLine]);
      out.settled += '\n';
    }
    line.clear();
    given.clear();
  }
  for (const char c : all)
    if (c != ' ' || (!out.form.empty() && out.form.back() != ' ')) out.form += c;
  if (!out.form.empty() && out.form.back() == ' ') out.form.pop_back();
  if (!out.form.empty() || points.empty() || !out.readable) return out;
  out.readable = false;  // nothing is left of the whole text
  out.settled = std::string("\xFF") + kPassage + '\xFF';
  out.form = kPassageForm;
  return out;
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

bool has(const std::vector<uint64_t>& values, uint64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Whether these are lines of a text, or whole texts, in their order.
void check_lines(const std::string& text, const std::vector<uint64_t>& lines,
                 const std::vector<uint64_t>& offsets) {
  uint64_t before = 0;
  for (size_t i = 0; i < lines.size(); i += 2) {
    const uint64_t start = lines[i], end = lines[i + 1];
    REQUIRE(before <= start && start < end && end <= text.size());
    REQUIRE(text.find('\n', start) >= end || (has(offsets, start) && has(offsets, end)));
    REQUIRE(has(offsets, start) || text[start - 1] == '\n');
    REQUIRE(has(offsets, end) || text[end] == '\n');
    before = end;
  }
}

using Sums = std::array<int64_t, 64 * kMaxRowWords>;
using Weighed = std::map<uint64_t, uint64_t>;  // features of a row, with their weights

// Adds the features of a text.
void slow_features(const std::string& form, const TextOptions& options,
                   const std::vector<uint64_t>& stops, uint64_t times, Weighed* all) {
  const std::vector<std::string> units = units_of(form, options.words);
  const auto hash_of = [&](const std::string& text) {
    return feature_hash(options.hash, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                        options.seed);
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
  for (const auto& [hash, count] : counts) {
    uint64_t weight = count;
    if (options.counting == Counting::distinct) weight = 1;
    if (options.counting == Counting::log)
      for (weight = 0; count >> weight;) ++weight;
    uint64_t factor = options.weights.other;
    for (size_t i = 0; i < options.weights.count; ++i)
      if (options.weights.hashes[i] == hash) factor = options.weights.weights[i];
    if (weight *= factor * times) (*all)[hash] += weight;
  }
}

// The simhash of weighted features.
std::vector<uint64_t> slow_simhash(const Weighed& features, unsigned row_words) {
  Sums sums{};
  for (const auto& [hash, weight] : features) {
    uint64_t words[kMaxRowWords];
    feature_row(hash, row_words, words);
    for (unsigned b = 0; b < 64 * row_words; ++b)
      sums[b] += words[b / 64] >> b % 64 & 1 ? static_cast<int64_t>(weight)
                                             : -static_cast<int64_t>(weight);
  }
  std::vector<uint64_t> row(row_words);
  for (unsigned b = 0; b < 64 * row_words; ++b) row[b / 64] |= uint64_t{sums[b] > 0} << b % 64;
  return row;
}

// The MinHash of features, of those of a set one function after the other.
std::vector<uint64_t> slow_minhash(const Weighed& features, bool of_sets, uint64_t seed,
                                   unsigned row_words) {
  std::vector<uint64_t> row(row_words), hashes;
  std::vector<double> weights;
  for (const auto& [hash, weight] : features) {
    hashes.push_back(hash);
    weights.push_back(static_cast<double>(weight));
  }
  if (!of_sets) {
    TextOptions options{};
    options.seed = seed;
    options.row_words = row_words;
    minhash_features(hashes.data(), weights.data(), hashes.size(), options, row.data());
    return row;
  }
  for (unsigned i = 0; i < 64 * row_words; ++i) {
    const uint64_t word = xxh::avalanche(xxh::avalanche(seed + xxh::kP2) + i * xxh::kP1);
    uint32_t least = UINT32_MAX;
    for (const uint64_t hash : hashes) {
      const uint32_t value =
          static_cast<uint32_t>(xxh::avalanche(hash)) * (static_cast<uint32_t>(word) | 1) +
          static_cast<uint32_t>(word >> 32);
      least = std::min(least, value);
    }
    least = (least ^ least >> 16) * 0x85EBCA6Bu;
    least = (least ^ least >> 13) * 0xC2B2AE35u;
    row[i / 64] |= uint64_t{least >> 31} << (63 - i % 64);
  }
  return row;
}

struct Found {
  std::vector<uint64_t> rows;
  std::vector<TextState> states;
};

Found hashed(bool (*make)(const Texts&, const TextOptions&, const TextResults&), const Map& map,
             const std::string& texts, const std::vector<uint64_t>& offsets, unsigned rows,
             const TextOptions& options, UnknownForms* unknown) {
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[texts.size()]);  // in memory of just that size
  std::copy(texts.begin(), texts.end(), bytes.get());
  Found found{std::vector<uint64_t>(rows * options.row_words), std::vector<TextState>(rows)};
  REQUIRE(make({map.view(), bytes.get(), offsets.data(), rows}, options,
               {found.rows.data(), found.states.data(), unknown}));
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  TextOptions options{};
  options.words = input.byte() & 1;
  options.length = 1 + input.byte() % 4;
  options.counting = static_cast<Counting>(input.byte() % 3);
  options.hash = static_cast<FeatureHash>(input.byte() % 2);
  options.seed = input.byte();
  options.row_words = 1u << input.byte() % 3;
  const bool minhash = input.byte() & 1, valid = input.byte() % 4, weighted = input.byte() % 2,
             stopped = input.byte() % 4 == 0;
  const unsigned rows = 1 + input.byte() % 3;
  std::vector<uint32_t> fields(1 + input.byte() % 3);
  for (uint32_t& weight : fields) weight = fields.size() > 1 ? 1 + input.word(2) % kMaxWeight : 1;
  options.field_count = static_cast<unsigned>(fields.size());
  options.field_weights = fields.data();
  fuzz::Input drawn = input;
  const Map map(&drawn);

  std::vector<std::vector<uint32_t>> points(rows * fields.size());
  std::string whole;
  std::vector<uint64_t> offsets{0};
  for (std::vector<uint32_t>& text : points) {
    for (unsigned left = input.word(2) % 300; left && input.left(); --left) {
      const uint32_t point =
          input.byte() < 128 ? "ab c\n"[input.byte() % 5] : input.word(2) % (kPages * kPagePoints);
      text.push_back(point);
      whole += valid ? utf8(point) : std::string(1, static_cast<char>(point));
    }
    offsets.push_back(whole.size());
  }
  std::vector<uint64_t> stops, hashes;
  std::vector<uint32_t> weights;
  if (stopped)
    stops = {feature_hash(options.hash, reinterpret_cast<const uint8_t*>("a"), 1, options.seed)};
  if (weighted) {
    hashes = {feature_hash(options.hash, reinterpret_cast<const uint8_t*>("b"), 1, options.seed)};
    weights = {input.byte()};
    options.weights = {hashes.data(), weights.data(), 1, static_cast<uint32_t>(input.byte() % 5)};
  }
  options.stops = stops.data();
  options.stop_count = stops.size();

  const auto make = minhash ? minhash_texts : simhash_texts;
  UnknownForms unknown;
  const Found found = hashed(make, map, whole, offsets, rows, options, &unknown);
  if (!valid) return 0;
  check_lines(whole, unknown.lines, offsets);
  std::string settled;
  std::vector<uint64_t> settled_offsets{0};
  std::vector<Weighed> features(rows);
  for (size_t i = 0; i < points.size(); ++i) {
    const SlowText text = slow_text(map, points[i]);
    const size_t row = i / fields.size(), field = i % fields.size();
    if (!text.readable) REQUIRE(found.states[row] == TextState::unknown);
    slow_features(text.form, options, stops, fields[field], &features[row]);
    settled += text.settled;
    settled_offsets.push_back(settled.size());
  }
  const size_t lines = unknown.lines.size();
  const Found of_settled = hashed(make, map, settled, settled_offsets, rows, options, &unknown);
  REQUIRE(unknown.lines.size() == lines);
  for (unsigned i = 0; i < rows; ++i) {
    REQUIRE(of_settled.states[i] == (features[i].empty() ? TextState::empty : TextState::known));
    if (!features[i].empty()) {
      const auto row =
          minhash ? slow_minhash(features[i], options.is_set(), options.seed, options.row_words)
                  : slow_simhash(features[i], options.row_words);
      REQUIRE(std::equal(row.begin(), row.end(), of_settled.rows.begin() + i * options.row_words));
    }
    if (found.states[i] == TextState::unknown) continue;
    REQUIRE(found.states[i] == of_settled.states[i]);
    for (unsigned w = i * options.row_words; w < (i + 1) * options.row_words; ++w)
      REQUIRE(found.rows[w] == of_settled.rows[w]);
  }
  return 0;
}
