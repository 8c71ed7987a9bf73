#include "text/passages.hpp"

#include <algorithm>
#include <array>

#include "format/xxh64.hpp"
#include "lines/characters.hpp"
#include "text/features.hpp"

namespace fpstore {

namespace {

// Calls use(start, end) for the words of a text, until it returns false.
template <class Use>
void each_word(const uint8_t* text, const uint8_t* end, Use use) {
  const uint8_t* p = text;
  while (p < end) {
    if (const size_t blank = space_bytes(p, end)) {
      p += blank;
      continue;
    }
    const uint8_t* const start = p;
    do ++p;
    while (p < end && !space_bytes(p, end));
    if (!use(start, p)) return;
  }
}

// Hashes of runs are polynomials modulo a prime, of which the units are the coefficients.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr uint64_t kBases[] = {xxh::kP1 & kPrime, xxh::kP2 & kPrime};

inline uint64_t reduced(uint64_t x) {
  x = (x & kPrime) + (x >> 61);
  return x >= kPrime ? x - kPrime : x;
}
inline uint64_t times(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return reduced(static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61));
}

// The first kHashes hashes of each word: XXH64 and FNV-1a. Two polynomials of one hash would be
// equal for runs that differ in words of that hash.
template <size_t kHashes>
class WordUnits {
 public:
  void set(const uint8_t* text, const uint8_t* end) {
    units_.clear();
    each_word(text, end, [&](const uint8_t* start, const uint8_t* stop) {
      const size_t size = static_cast<size_t>(stop - start);
      std::array<uint64_t, kHashes> unit = {reduced(xxh64(start, size, 0))};
      if constexpr (kHashes > 1) unit[1] = reduced(xxh::avalanche(Fnv1a{}(start, size)));
      units_.push_back(unit);
      return true;
    });
  }
  size_t size() const { return units_.size(); }
  uint64_t at(size_t i, size_t hash) const { return units_[i][hash]; }

 private:
  std::vector<std::array<uint64_t, kHashes>> units_;
};

class ByteUnits {
 public:
  void set(const uint8_t* text, const uint8_t* end) {
    text_ = text;
    size_ = static_cast<size_t>(end - text);
  }
  size_t size() const { return size_; }
  uint64_t at(size_t i, size_t) const { return text_[i]; }

 private:
  const uint8_t* text_ = nullptr;
  size_t size_ = 0;
};

// The hash of one run of a length after the other, by one of the bases and of the hashes of units.
class Roll {
 public:
  Roll(size_t number, size_t length) : number_(number), base_(kBases[number]), length_(length) {
    for (size_t i = 0; i < length; ++i) power_ = times(power_, base_);
  }
  template <class Units>
  void begin(const Units& units, size_t at) {
    hash_ = 0;
    for (size_t i = at; i < at + length_; ++i)
      hash_ = reduced(times(hash_, base_) + units.at(i, number_));
  }
  // From the run at a place to the one behind it.
  template <class Units>
  void step(const Units& units, size_t at) {
    const uint64_t more = times(hash_, base_) + units.at(at + length_, number_);
    hash_ = reduced(more + kPrime - times(power_, units.at(at, number_)));
  }
  uint64_t hash() const { return xxh::avalanche(hash_); }

 private:
  size_t number_;
  uint64_t base_, power_ = 1, hash_ = 0;
  size_t length_;
};

// Calls use(units, place of the first) for each text, and notes how many it has.
template <class Units, class Use>
void each_text(const UnitTexts& texts, uint64_t* counts, Stopper* stop, Use use) {
  Units units;
  uint64_t first = 0;
  for (size_t i = 0; i < texts.count; ++i) {
    units.set(texts.bytes + texts.offsets[i], texts.bytes + texts.offsets[i + 1]);
    use(units, first);
    counts[i] = units.size();
    first += units.size();
    if (should_stop(stop, units.size())) return;
  }
}

// The least hash of the last grams of a text, as many as a window has.
class Choice {
 public:
  explicit Choice(size_t window) : last_(window) {}

  template <class Units, class Use>
  void each(const Units& units, Roll* roll, size_t grams, Use use) {
    const size_t window = last_.size();
    size_t least = 0, slot = 0, used = SIZE_MAX;
    for (size_t i = 0; i < grams; ++i) {
      i ? roll->step(units, i - 1) : roll->begin(units, 0);
      last_[slot] = roll->hash();
      if (!i || last_[slot] <= hash_) {
        hash_ = last_[slot];
        least = i;
      } else if (i - least >= window) {
        least = i - least_age(slot);
      }
      slot = slot + 1 == window ? 0 : slot + 1;
      if (i + 1 >= window && least != used) use(hash_, used = least);
    }
  }

 private:
  // How many grams ago the least hash came, of a full window that ends at a slot.
  size_t least_age(size_t slot) {
    size_t out = 0;
    hash_ = last_[slot];
    for (size_t age = 1; age < last_.size(); ++age) {
      slot = slot ? slot - 1 : last_.size() - 1;
      if (last_[slot] < hash_) {
        hash_ = last_[slot];
        out = age;
      }
    }
    return out;
  }

  std::vector<uint64_t> last_;
  uint64_t hash_ = 0;
};

template <class Units>
void choose(const UnitTexts& texts, const Lengths& lengths, std::vector<uint64_t>* hashes,
            std::vector<uint64_t>* places, uint64_t* counts, Stopper* stop) {
  Roll roll(0, lengths.gram);
  Choice choice(lengths.size - lengths.gram + 1);
  each_text<Units>(texts, counts, stop, [&](const Units& units, uint64_t first) {
    if (units.size() < lengths.size) return;
    choice.each(units, &roll, units.size() - lengths.gram + 1, [&](uint64_t hash, size_t at) {
      hashes->push_back(hash);
      places->push_back(first + at);
    });
  });
}

template <class Units>
void make_keys(const UnitTexts& texts, const Lengths& lengths, const uint64_t* grams, size_t n,
               std::vector<uint64_t>* keys, std::vector<uint64_t>* places, uint64_t* counts,
               Stopper* stop) {
  Roll rolls[] = {{0, lengths.size}, {1, lengths.size}};
  const uint64_t *gram = grams, *const last = grams + n;
  each_text<Units>(texts, counts, stop, [&](const Units& units, uint64_t first) {
    const uint64_t* const end = std::lower_bound(gram, last, first + units.size());
    if (units.size() < lengths.size) gram = end;
    size_t next = 0, rolled = SIZE_MAX;  // the next window, and the one that the hashes are of
    for (; gram < end; ++gram) {
      const size_t at = static_cast<size_t>(*gram - first), before = lengths.size - lengths.gram;
      const size_t stop_at = std::min(at, units.size() - lengths.size);
      for (next = std::max(next, at > before ? at - before : 0); next <= stop_at; ++next) {
        for (Roll& roll : rolls) {
          rolled + 1 == next&& next ? roll.step(units, rolled) : roll.begin(units, next);
          keys->push_back(roll.hash());
        }
        places->push_back(first + next);
        rolled = next;
      }
    }
  });
}

}  // namespace

void choose_grams(const UnitTexts& texts, const Lengths& lengths, std::vector<uint64_t>* hashes,
                  std::vector<uint64_t>* places, uint64_t* units, Stopper* stop) {
  const auto work = texts.words ? &choose<WordUnits<1>> : &choose<ByteUnits>;
  work(texts, lengths, hashes, places, units, stop);
}

void window_keys(const UnitTexts& texts, const Lengths& lengths, const uint64_t* grams, size_t n,
                 std::vector<uint64_t>* keys, std::vector<uint64_t>* places, uint64_t* units,
                 Stopper* stop) {
  const auto work = texts.words ? &make_keys<WordUnits<2>> : &make_keys<ByteUnits>;
  work(texts, lengths, grams, n, keys, places, units, stop);
}

size_t word_bounds(const uint8_t* text, size_t size, const uint64_t* words, size_t n,
                   uint64_t* starts, uint64_t* ends) {
  size_t count = 0, done = 0;
  each_word(text, text + size, [&](const uint8_t* start, const uint8_t* end) {
    for (; done < n && words[done] == count; ++done) {
      starts[done] = static_cast<uint64_t>(start - text);
      ends[done] = static_cast<uint64_t>(end - text);
    }
    ++count;
    return true;
  });
  return count;
}

}  // namespace fpstore
