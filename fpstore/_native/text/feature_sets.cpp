#include "text/feature_sets.hpp"

#include <cstring>

namespace fpstore {

namespace {

constexpr unsigned kDigitBits = 11, kDigits = 3;
using DigitStarts = uint32_t[kDigits][1u << kDigitBits];

// Sorts numbers by digits, from the lowest on, into `other`, which is as large.
void sort_by_digits(uint32_t* numbers, uint32_t* other, size_t n, DigitStarts& starts) {
  constexpr uint32_t kMask = (1u << kDigitBits) - 1;
  memset(starts, 0, sizeof starts);
  for (size_t i = 0; i < n; ++i) {
    ++starts[0][numbers[i] & kMask];
    ++starts[1][numbers[i] >> kDigitBits & kMask];
    ++starts[2][numbers[i] >> 2 * kDigitBits];
  }
  for (auto& digit : starts) {
    uint32_t sum = 0;
    for (uint32_t& start : digit) {
      const uint32_t count = start;
      start = sum;
      sum += count;
    }
  }
  for (unsigned digit = 0; digit < kDigits; ++digit) {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t number = numbers[i];
      other[starts[digit][number >> digit * kDigitBits & kMask]++] = number;
    }
    std::swap(numbers, other);
  }
}

constexpr size_t kManyNumbers = 400;  // from which on digits sort faster

// Sorts numbers from a place on.
template <class T>
class SetSorter {
 public:
  void sort(std::vector<T>* numbers, size_t start) {
    const size_t n = numbers->size() - start;
    if constexpr (sizeof(T) == sizeof(uint32_t)) {
      if (n >= kManyNumbers && n <= UINT32_MAX) {
        copies_.resize(std::max(copies_.size(), n));
        sort_by_digits(numbers->data() + start, copies_.data(), n, starts_);
        std::copy_n(copies_.data(), n, numbers->data() + start);
        return;
      }
    }
    std::sort(numbers->begin() + static_cast<ptrdiff_t>(start), numbers->end());
  }

 private:
  std::vector<T> copies_;
  DigitStarts starts_;
};

// Makes the set of what a Choice takes of the hashes of a row: choose(hash, out), and at the end of
// the row choose.rest(out).
template <class T, class Choice>
class SetWriter {
 public:
  SetWriter(const TextOptions& options, std::vector<T>* out, Choice choose)
      : options_(options), features_(options), out_(out), choose_(choose) {}
  void add(const NormalText& text, unsigned) {
    features_.each(text, [&](const uint64_t* hashes, size_t n) {
      for (size_t i = 0; i < n; ++i) choose_(hashes[i], out_);
    });
    units_ = features_.units_of_one(text);
  }
  bool finish(uint64_t* row) {
    choose_.rest(out_);
    const auto first = out_->begin() + static_cast<ptrdiff_t>(end_);
    sorter_.sort(out_, end_);
    out_->erase(std::unique(first, out_->end()), out_->end());
    const bool known = out_->size() != end_;
    row[0] = end_ = out_->size();
    describe(row, first);
    return known;
  }

 private:
  template <class It>
  void describe(uint64_t* row, It first) const {
    const auto n = static_cast<uint64_t>(out_->end() - first);
    if (options_.row_words == 2) row[1] = units_;
    if (options_.row_words != 3) return;
    const T* const set = out_->data() + (first - out_->begin());
    row[1] = fpstore::xxh64(reinterpret_cast<const uint8_t*>(set), n * sizeof(T), 0);
    row[2] = n;
    if (n > options_.samples)
      row[2] = static_cast<uint64_t>(
          std::lower_bound(set, set + n, (uint64_t{options_.samples} << 32) / n) - set);
  }

  const TextOptions& options_;
  Features features_;
  std::vector<T>* out_;
  SetSorter<T> sorter_;
  Choice choose_;
  size_t end_ = 0;
  unsigned units_ = 0;
};

template <class T>
struct EachHash {
  void operator()(uint64_t h, std::vector<T>* out) const { out->push_back(static_cast<T>(h)); }
  void rest(std::vector<T>*) const {}
};

// Looks hashes up some steps after they are met, when the memory of the filter has come.
class KnownRanks {
 public:
  explicit KnownRanks(const HashRanks& known) : known_(known) {}
  void operator()(uint64_t h, std::vector<uint32_t>* out) {
    known_.fetch(h);
    waiting_[count_++] = h;
    if (count_ == kWaiting) rest(out);
  }
  void rest(std::vector<uint32_t>* out) {
    for (size_t i = 0; i < count_; ++i) {
      const size_t rank = known_.of(waiting_[i]);
      if (rank < known_.size()) out->push_back(static_cast<uint32_t>(rank));
    }
    count_ = 0;
  }

 private:
  static constexpr size_t kWaiting = 32;
  const HashRanks& known_;
  uint64_t waiting_[kWaiting];
  size_t count_ = 0;
};

template <class T, class Choice>
bool make_sets(const Texts& texts, const TextOptions& options, const TextResults& results,
               std::vector<T>* out, Choice choose) {
  return make_rows<SetWriter<T, Choice>>(texts, options, results, out, choose);
}

}  // namespace

bool feature_sets(const Texts& texts, const TextOptions& options, const TextResults& results,
                  std::vector<uint32_t>* features) {
  return make_sets(texts, options, results, features, EachHash<uint32_t>());
}

bool feature_hashes(const Texts& texts, const TextOptions& options, const TextResults& results,
                    std::vector<uint64_t>* features) {
  return make_sets(texts, options, results, features, EachHash<uint64_t>());
}

bool feature_ranks(const Texts& texts, const TextOptions& options, const TextResults& results,
                   const HashRanks& known, std::vector<uint32_t>* ranks) {
  return make_sets(texts, options, results, ranks, KnownRanks(known));
}

}  // namespace fpstore
