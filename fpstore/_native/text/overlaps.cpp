#include "text/overlaps.hpp"

#include <algorithm>

#include "format/errors.hpp"

namespace fpstore {

void list_texts(const Span<const uint64_t>& sizes, const uint32_t* ranks, const uint32_t* order,
                const PairingRule& rule, uint64_t first_place, TextLists* out, Stopper* stop) {
  uint64_t heads = 0, texts = 0;
  for (const uint64_t size : sizes) {
    heads += size > 1 ? std::min<uint64_t>(size - 1, rule.most) : 0;
    texts += size > 1 ? size - 1 : 0;
    if (should_stop(stop, 1)) return;
  }
  out->heads.reserve(heads);
  out->texts.reserve(texts);
  out->head_spans.reserve(texts);
  for (const uint64_t size : sizes) {
    const uint64_t start = first_place + out->heads.size();
    for (uint64_t i = 0; size > 1 && i < size; ++i) {
      const uint32_t text = order[ranks[i]];
      if (i < rule.most && i + 1 < size) out->heads.push_back(text);
      if (!i) continue;
      const bool is_crowded = i > rule.most;
      const uint64_t most = is_crowded ? rule.most_crowded : rule.most;
      out->texts.push_back(text);
      out->head_spans.push_back(
          HeadSpan{start, static_cast<unsigned>(std::min(i, most)), is_crowded}.word());
    }
    ranks += size;
    if (should_stop(stop, size)) return;
  }
}

void SharedCounter::add(const HeadSpan& span) {
  need(span.start <= heads_.size && span.count <= heads_.size - span.start,
       "no such place in the heads");
  for (const uint32_t *other = heads_.data + span.start, *const end = other + span.count;
       other < end; ++other) {
    const uint32_t number = *other;
    need(number < counts_.size(), "no such text");
    Count& count = counts_[number];
    if (!count.total++) partners_.push_back(number);
    count.rare += !span.is_crowded;
  }
}

// Writes the pairs of a text that share enough, and forgets all.
void SharedCounter::finish(uint64_t text, uint32_t least, uint32_t crowded, SharedPairs* out) {
  size_t kept = 0;
  for (const uint32_t other : partners_) {
    if (counts_[other].total >= least)
      partners_[kept++] = other;
    else
      counts_[other] = {};
  }
  partners_.resize(kept);
  std::sort(partners_.begin(), partners_.end());
  for (const uint32_t other : partners_) {
    out->texts.push_back(text);
    out->others.push_back(other);
    out->rare.push_back(counts_[other].rare);
    out->total.push_back(counts_[other].total);
    out->crowded.push_back(crowded);
  }
  forget();
}

void SharedCounter::forget() {
  for (const uint32_t other : partners_) counts_[other] = {};
  partners_.clear();
}

void SharedCounter::count(const PairedTexts& texts, SharedPairs* out, Stopper* stop) {
  forget();  // what a call left that threw
  size_t next = 0;
  for (size_t i = 0; i < texts.numbers.size; ++i) {
    need(texts.counts[i] <= texts.head_spans.size - next, "more spans than there are");
    uint64_t work = 1;
    uint32_t crowded = 0;
    for (const size_t end = next + texts.counts[i]; next < end; ++next) {
      const HeadSpan span = HeadSpan::of_word(texts.head_spans[next]);
      add(span);
      crowded += span.is_crowded;
      work += span.count;
    }
    finish(texts.numbers[i], texts.least[i], crowded, out);
    if (should_stop(stop, work)) return;
  }
  need(next == texts.head_spans.size, "fewer spans than there are");
}

}  // namespace fpstore
