#include "text/feature_sets.hpp"

namespace fpstore {

namespace {

class SetWriter {
 public:
  SetWriter(const TextOptions& options, std::vector<uint32_t>* out) : features_(options), out_(out) {}
  void add(const NormalText& text, unsigned) {
    features_.each(text, [&](uint64_t h) { out_->push_back(static_cast<uint32_t>(h)); });
  }
  bool finish(uint64_t* row) {
    const auto first = out_->begin() + static_cast<ptrdiff_t>(end_);
    std::sort(first, out_->end());
    out_->erase(std::unique(first, out_->end()), out_->end());
    const bool known = out_->size() != end_;
    *row = end_ = out_->size();
    return known;
  }

 private:
  Features features_;
  std::vector<uint32_t>* out_;
  size_t end_ = 0;
};

}  // namespace

bool feature_sets(const Texts& texts, const TextOptions& options, const TextResults& results, std::vector<uint32_t>* features) {
  return make_rows<SetWriter>(texts, options, results, features);
}

void jaccard_similarities(const uint32_t* features, const uint64_t* lims, const uint64_t* a, const uint64_t* b, size_t n, double* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t *left = features + lims[a[i]], *right = features + lims[b[i]];
    const uint32_t *const left_end = features + lims[a[i] + 1], *const right_end = features + lims[b[i] + 1];
    const auto sum = static_cast<size_t>(left_end - left) + static_cast<size_t>(right_end - right);
    size_t common = 0;
    while (left < left_end && right < right_end) {
      const uint32_t l = *left, r = *right;
      common += l == r;
      left += l <= r;
      right += r <= l;
    }
    out[i] = sum ? static_cast<double>(common) / static_cast<double>(sum - common) : 1;
  }
}

}  // namespace fpstore
