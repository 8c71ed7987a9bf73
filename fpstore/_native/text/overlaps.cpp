#include "text/overlaps.hpp"

#include <algorithm>

#include "format/errors.hpp"

namespace fpstore {

void list_texts(const Span<const uint64_t>& sizes, const uint32_t* ranks, const uint32_t* order,
                const PairingRule& rule, TextLists* out, Stopper* stop) {
  uint64_t heads = 0, texts = 0;
  for (const uint64_t size : sizes) {
    heads += size > 1 ? std::min<uint64_t>(size - 1, rule.most) : 0;
    texts += size > 1 ? size - 1 : 0;
    if (should_stop(stop, 1)) return;
  }
  out->heads.reserve(heads);
  out->texts.reserve(texts);
  out->before.reserve(texts);
  for (const uint64_t size : sizes) {
    const uint64_t start = out->first_place + out->heads.size();
    for (uint64_t i = 0; size > 1 && i < size; ++i) {
      const uint32_t text = order[ranks[i]];
      if (i < rule.most && i + 1 < size) out->heads.push_back(text);
      if (!i) continue;
      const bool is_crowded = i > rule.most;
      const uint64_t most = is_crowded ? rule.most_crowded : rule.most;
      out->texts.push_back(text);
      out->before.push_back(
          Before{start, static_cast<unsigned>(std::min(i, most)), is_crowded}.word());
    }
    ranks += size;
    if (should_stop(stop, size)) return;
  }
}

void SharedCounter::add(const Before& before) {
  need(before.start <= heads_.size && before.count <= heads_.size - before.start,
       "no such place in the heads");
  for (const uint32_t *other = heads_.data + before.start, *const end = other + before.count;
       other < end; ++other) {
    const uint32_t number = *other;
    need(number < counts_.size(), "no such text");
    Count& count = counts_[number];
    if (!count.total++) met_.push_back(number);
    count.rare += !before.is_crowded;
  }
}

// Writes the pairs of a text that share enough, and forgets all.
void SharedCounter::finish(uint64_t text, uint32_t least, uint32_t crowded, SharedPairs* out) {
  size_t kept = 0;
  for (const uint32_t other : met_) {
    if (counts_[other].total >= least)
      met_[kept++] = other;
    else
      counts_[other] = {};
  }
  met_.resize(kept);
  std::sort(met_.begin(), met_.end());
  for (const uint32_t other : met_) {
    out->texts.push_back(text);
    out->others.push_back(other);
    out->rare.push_back(counts_[other].rare);
    out->total.push_back(counts_[other].total);
    out->crowded.push_back(crowded);
  }
  forget();
}

void SharedCounter::forget() {
  for (const uint32_t other : met_) counts_[other] = {};
  met_.clear();
}

void SharedCounter::count(const Occurrences& of, SharedPairs* out, Stopper* stop) {
  forget();  // what a call left that threw
  size_t next = 0;
  for (size_t i = 0; i < of.texts.size; ++i) {
    need(of.counts[i] <= of.before.size - next, "more words than there are");
    uint64_t work = 1;
    uint32_t crowded = 0;
    for (const size_t end = next + of.counts[i]; next < end; ++next) {
      const Before before = Before::of(of.before[next]);
      add(before);
      crowded += before.is_crowded;
      work += before.count;
    }
    finish(of.texts[i], of.least[i], crowded, out);
    if (should_stop(stop, work)) return;
  }
}

}  // namespace fpstore
