#include "text/feature_sets.hpp"

namespace fpstore {

namespace {

// Makes the set of what a Choice takes of the hashes of a row: choose(hash, out), and at the end of
// the row choose.rest(out).
template <class T, class Choice>
class SetWriter {
 public:
  SetWriter(const TextOptions& options, std::vector<T>* out, Choice choose)
      : options_(options), features_(options), out_(out), choose_(choose) {}
  void add(const NormalText& text, unsigned) {
    features_.each(text, [&](uint64_t h) { choose_(h, out_); });
    units_ = features_.units_of_one(text);
  }
  bool finish(uint64_t* row) {
    choose_.rest(out_);
    const auto first = out_->begin() + static_cast<ptrdiff_t>(end_);
    std::sort(first, out_->end());
    out_->erase(std::unique(first, out_->end()), out_->end());
    const bool known = out_->size() != end_;
    row[0] = end_ = out_->size();
    if (options_.row_words > 1) row[1] = units_;
    return known;
  }

 private:
  const TextOptions& options_;
  Features features_;
  std::vector<T>* out_;
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

double jaccard_similarity(const SetsOfFeatures& sets, uint64_t a, uint64_t b) {
  const uint32_t *left = sets.features + sets.lims[a], *right = sets.features + sets.lims[b];
  const uint32_t *const left_end = left + sets.size(a), *const right_end = right + sets.size(b);
  const uint64_t sum = sets.size(a) + sets.size(b);
  uint64_t common = 0;
  while (left < left_end && right < right_end) {
    const uint32_t l = *left, r = *right;
    common += l == r;
    left += l <= r;
    right += r <= l;
  }
  return sum ? static_cast<double>(common) / static_cast<double>(sum - common) : 1;
}

}  // namespace fpstore
