// Runs of words or bytes that texts have in common: whatever the bytes, nothing outside of them is
// read; the grams, windows and words are what slow oracles find, and the windows around repeated
// grams are all that occur twice.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "text/passages.hpp"

using namespace fpstore;

namespace {

constexpr size_t kMaxBytes = 400;  // of all texts: the oracles compare each window unit by unit
// The white space of Python's str.split().
const std::vector<std::string> kBlanks = [] {
  std::vector<std::string> out;
  for (const char* ascii = "\t\n\v\f\r\x1C\x1D\x1E\x1F "; *ascii; ++ascii) out.push_back({*ascii});
  for (const char* blank : {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\xA8", "\xE2\x80\xA9",
                            "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"})
    out.push_back(blank);
  for (char last = '\x80'; last <= '\x8A'; ++last) out.push_back(std::string("\xE2\x80") + last);
  return out;
}();
// What words are made of. Some characters begin as white space does.
const std::vector<std::string> kLetters = {"a",
                                           "b",
                                           "c",
                                           "a",
                                           "\xC3\xA4",
                                           "\xC2\x86",
                                           "\xC2\xA1",
                                           "\xE2\x80\x8B",
                                           "\xE3\x80\x81",
                                           "\xE1\x9A\x81",
                                           "\xF0\x9D\x84\x9E",
                                           std::string(1, '\0')};

using Run = std::pmr::vector<uint64_t>;     // of units: the number of each word, or bytes
using Runs = std::pmr::map<uint64_t, Run>;  // by their places
using Place = std::pair<size_t, size_t>;    // start and end of a word, in bytes

std::vector<Place> slow_words(const std::string& text) {
  std::vector<Place> words;
  bool in_word = false;
  for (size_t p = 0; p < text.size();) {
    size_t blank = 0;
    for (const std::string& space : kBlanks)
      if (text.compare(p, space.size(), space) == 0) blank = space.size();
    if (!blank && !in_word) words.push_back({p, p});
    in_word = !blank;
    p += blank ? blank : 1;
    if (in_word) words.back().second = p;
  }
  return words;
}

std::vector<Place> words_of(const std::string& text, const std::vector<uint64_t>& numbers,
                            size_t* count) {
  const auto bytes = fuzz::exact(text);
  const size_t n = numbers.size();
  const std::unique_ptr<uint64_t[]> starts(new uint64_t[n]), ends(new uint64_t[n]);
  std::fill_n(starts.get(), n, text.size());
  std::fill_n(ends.get(), n, text.size());
  const auto word_numbers = fuzz::exact(numbers);
  *count = word_bounds(bytes.get(), text.size(), word_numbers.get(), n, starts.get(), ends.get());
  std::vector<Place> out;
  for (size_t i = 0; i < n; ++i) out.push_back({starts[i], ends[i]});
  return out;
}

// Texts that are drawn from an input, and their units.
class Texts {
 public:
  Texts(fuzz::Input* input, bool words, bool valid) : words_(words) {
    const unsigned count = input->byte() % 5;
    for (unsigned i = 0; i < count; ++i) {
      for (unsigned left = input->byte() % 96; left && input->left(); --left) add(input, valid);
      offsets_.push_back(bytes_.size());
    }
    for (unsigned i = 0; i < count; ++i)
      cut(bytes_.substr(offsets_[i], offsets_[i + 1] - offsets_[i]));
  }

  const std::vector<Run>& units() const { return units_; }
  const std::string& bytes() const { return bytes_; }
  size_t count() const { return units_.size(); }
  size_t total() const {
    size_t out = 0;
    for (const auto& text : units_) out += text.size();
    return out;
  }
  // Calls use with the texts as the kernel takes them.
  template <class Use>
  void with(Use use) const {
    const auto bytes = fuzz::exact(bytes_);
    const auto offsets = fuzz::exact(offsets_);
    use(UnitTexts{bytes.get(), offsets.get(), units_.size(), words_});
  }

 private:
  void add(fuzz::Input* input, bool valid) {
    if (bytes_.size() > kMaxBytes) return;
    const uint8_t kind = input->byte();
    if (kind < 40 && !bytes_.empty() && valid) {  // a copy of earlier words
      const std::vector<Place> words = slow_words(bytes_);
      if (words.empty()) return;
      const size_t first = input->byte() % words.size();
      const size_t last = std::min<size_t>(first + input->byte() % 32, words.size() - 1);
      bytes_ += bytes_.substr(words[first].first, words[last].second - words[first].first) + ' ';
    } else if (kind < 128) {
      bytes_ += kBlanks[kind % kBlanks.size()];
    } else if (valid) {
      bytes_ += kLetters[kind % kLetters.size()];
    } else {
      const uint8_t byte = input->byte();  // white space is often cut off
      bytes_ += kind % 2 ? "\xC2\xE1\xE2\xE3\x80\x85\x9A\xA0"[byte % 8] : static_cast<char>(byte);
    }
  }
  void cut(const std::string& text) {
    Run units;
    if (words_) {
      // Of bytes that are not UTF-8, the words are those of the kernel.
      size_t count;
      std::vector<uint64_t> numbers(text.size());
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
      std::vector<Place> places = words_of(text, numbers, &count);
      REQUIRE(count <= places.size());
      places.resize(count);
      size_t before = 0;
      for (const auto& [start, end] : places) {
        REQUIRE(before <= start && start < end && end <= text.size());
        units.push_back(
            numbers_.emplace(text.substr(start, end - start), numbers_.size()).first->second);
        before = end + 1;
      }
    } else {
      for (const char byte : text) units.push_back(static_cast<uint8_t>(byte));
    }
    units_.push_back(units);
  }

  bool words_;
  std::string bytes_;
  std::map<std::string, uint64_t> numbers_;  // of words
  std::vector<uint64_t> offsets_{0};
  std::vector<Run> units_;
};

using Grams = std::vector<std::pair<uint64_t, uint64_t>>;  // place and hash

Grams grams_of(const Texts& texts, const Lengths& lengths) {
  Grams out;
  texts.with([&](const UnitTexts& unit_texts) {
    std::vector<uint64_t> hashes, places;
    const std::unique_ptr<uint64_t[]> units(new uint64_t[texts.count()]);
    choose_grams(unit_texts, lengths, &hashes, &places, units.get(), nullptr);
    for (size_t i = 0; i < texts.count(); ++i) REQUIRE(units[i] == texts.units()[i].size());
    REQUIRE(hashes.size() == places.size());
    for (size_t i = 0; i < hashes.size(); ++i) out.push_back({places[i], hashes[i]});
  });
  return out;
}

struct Windows {
  std::vector<uint64_t> places;
  std::vector<std::pair<uint64_t, uint64_t>> keys;
};

Windows windows_of(const Texts& texts, const Lengths& lengths, const std::vector<uint64_t>& grams) {
  Windows out;
  texts.with([&](const UnitTexts& unit_texts) {
    std::vector<uint64_t> keys;
    const std::unique_ptr<uint64_t[]> units(new uint64_t[texts.count()]);
    const auto chosen = fuzz::exact(grams);
    window_keys(unit_texts, lengths, chosen.get(), grams.size(), &keys, &out.places, units.get(),
                nullptr);
    for (size_t i = 0; i < texts.count(); ++i) REQUIRE(units[i] == texts.units()[i].size());
    REQUIRE(keys.size() == 2 * out.places.size());
    for (size_t i = 0; i < keys.size(); i += 2) out.keys.push_back({keys[i], keys[i + 1]});
  });
  return out;
}

// All runs of a length, by their places.
Runs slow_runs(const Texts& texts, size_t length) {
  Runs out;
  uint64_t first = 0;
  for (const Run& text : texts.units()) {
    for (size_t i = 0; i + length <= text.size(); ++i)
      out.emplace(first + i, Run(&text[i], &text[i] + length));
    first += text.size();
  }
  return out;
}

// Checks that hashes are equal just where the runs are.
template <class Hash>
void check_hashes(const Runs& runs, const std::vector<std::pair<uint64_t, Hash>>& hashes) {
  std::pmr::map<Run, Hash> by_run;
  std::set<Hash> all;
  for (const auto& [place, hash] : hashes) {
    const auto run = runs.find(place);
    REQUIRE(run != runs.end());
    REQUIRE(by_run.emplace(run->second, hash).first->second == hash);
    all.insert(hash);
  }
  REQUIRE(all.size() == by_run.size());
}

// The last of the least hashes in each window, by the hashes of all grams.
Grams slow_choice(const Texts& texts, const Lengths& lengths,
                  const std::map<uint64_t, uint64_t>& all) {
  std::map<uint64_t, uint64_t> chosen;
  for (const auto& [start, units] : slow_runs(texts, lengths.size)) {
    uint64_t least = start;
    for (uint64_t at = start; at <= start + lengths.size - lengths.gram; ++at)
      if (all.at(at) <= all.at(least)) least = at;
    chosen[least] = all.at(least);
  }
  return {chosen.begin(), chosen.end()};
}

void check_grams(const Texts& texts, const Lengths& lengths) {
  const Grams every = grams_of(texts, {lengths.gram, lengths.gram});
  const auto runs = slow_runs(texts, lengths.gram);
  REQUIRE(every.size() == runs.size());
  check_hashes(runs, every);
  REQUIRE(grams_of(texts, lengths) == slow_choice(texts, lengths, {every.begin(), every.end()}));
}

// The windows around some places, which ascend.
void check_windows(const Texts& texts, const Lengths& lengths, const std::vector<uint64_t>& grams) {
  std::vector<uint64_t> places;
  uint64_t first = 0;
  for (const Run& text : texts.units()) {
    for (uint64_t at = first; at + lengths.size <= first + text.size(); ++at)
      for (const uint64_t gram : grams)
        if (at <= gram && gram <= at + lengths.size - lengths.gram) {
          places.push_back(at);
          break;
        }
    first += text.size();
  }
  const Windows windows = windows_of(texts, lengths, grams);
  REQUIRE(windows.places == places);
  std::vector<std::pair<uint64_t, std::pair<uint64_t, uint64_t>>> keys;
  for (size_t i = 0; i < places.size(); ++i) keys.push_back({places[i], windows.keys[i]});
  check_hashes(slow_runs(texts, lengths.size), keys);
}

// The windows around grams that occur twice have all windows that occur twice.
void check_repeats(const Texts& texts, const Lengths& lengths) {
  std::map<uint64_t, unsigned> frequencies;
  const Grams chosen = grams_of(texts, lengths);
  for (const auto& [place, hash] : chosen) ++frequencies[hash];
  std::vector<uint64_t> places;
  for (const auto& [place, hash] : chosen)
    if (frequencies[hash] > 1) places.push_back(place);
  const Windows windows = windows_of(texts, lengths, places);
  std::map<std::pair<uint64_t, uint64_t>, unsigned> by_key;
  for (const auto& key : windows.keys) ++by_key[key];
  std::set<uint64_t> repeated;
  for (size_t i = 0; i < windows.places.size(); ++i)
    if (by_key[windows.keys[i]] > 1) repeated.insert(windows.places[i]);
  const auto runs = slow_runs(texts, lengths.size);
  std::pmr::map<Run, unsigned> by_run;
  for (const auto& [place, run] : runs) ++by_run[run];
  for (const auto& [place, run] : runs) REQUIRE(repeated.count(place) == (by_run[run] > 1));
}

void check_words(const std::string& text, std::vector<uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const std::vector<Place> words = slow_words(text);
  size_t count;
  const std::vector<Place> places = words_of(text, numbers, &count);
  REQUIRE(count == words.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    REQUIRE(places[i] ==
            (numbers[i] < count ? words[numbers[i]] : Place{text.size(), text.size()}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  const bool words = input.byte() % 4, valid = input.byte() % 4;
  const size_t window = 1 + input.byte() % 12;
  const Lengths lengths{window, 1 + input.byte() % window};
  std::vector<uint64_t> numbers(input.byte() % 16);
  for (uint64_t& number : numbers) number = input.byte();
  const Texts texts(&input, words, valid);
  check_grams(texts, lengths);
  check_repeats(texts, lengths);
  std::vector<uint64_t> places = numbers;
  for (uint64_t& place : places) place %= texts.total() + 3;  // some behind the last unit
  std::sort(places.begin(), places.end());
  check_windows(texts, lengths, places);
  if (valid) check_words(texts.bytes(), numbers);
  return 0;
}
