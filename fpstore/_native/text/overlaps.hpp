// Texts that share sampled features: lists of the texts of a feature, and what pairs of texts
// share.
#pragma once
#include <vector>

#include "format/span.hpp"
#include "isa/runtime.hpp"

namespace fpstore {

// A text is paired with the first texts of each of its lists: with `most` at most, or if more than
// these are before it, with `most_crowded`. The feature is crowded for it then.
struct PairingRule {
  unsigned most, most_crowded;
};
constexpr unsigned kMaxPaired = 127;

// The part of the heads of all lists with which a text is paired by a feature.
struct HeadSpan {
  uint64_t start;
  unsigned count;  // at most kMaxPaired
  bool is_crowded;

  static HeadSpan of_word(uint64_t word) {
    return {word >> 8, static_cast<unsigned>(word >> 1 & kMaxPaired), (word & 1) != 0};
  }
  uint64_t word() const { return start << 8 | count << 1 | is_crowded; }
};

// Of lists of two or more texts: their heads, which are the first texts, with which others are
// paired; and each text that is paired, with the word of a HeadSpan.
struct TextLists {
  std::vector<uint32_t> heads;
  std::vector<uint64_t> texts, head_spans;
};

// Adds lists of these sizes, which have the ranks of their texts: order[r] is the text of rank r.
// The sizes add up to the number of ranks, and each rank has a text. Their heads stand from
// first_place on among those of all lists.
void list_texts(const Span<const uint64_t>& sizes, const uint32_t* ranks, const uint32_t* order,
                const PairingRule& rule, uint64_t first_place, TextLists* out, Stopper* stop);

// Texts, each with the spans of heads that it is paired with in its lists, and how many features a
// pair of it must share.
struct PairedTexts {
  Span<const uint64_t> numbers;
  const uint64_t* counts;  // of spans of each text
  Span<const uint64_t> head_spans;
  const uint32_t* least;
};

// Pairs that share enough features, in the order of the texts, then by the other text. `rare` are
// those that are not crowded for the text, `crowded` is how many of all its features are.
struct SharedPairs {
  std::vector<uint64_t> texts, others;
  std::vector<int64_t> rare, total;
  std::vector<uint32_t> crowded;
};

// Counts the sampled features that texts share with those that they are paired with. All texts in
// the heads are below text_count.
class SharedCounter {
 public:
  SharedCounter(const Span<const uint32_t>& heads, size_t text_count)
      : heads_(heads), counts_(text_count) {}

  // Throws if the heads have no such place, or another text.
  void count(const PairedTexts& texts, SharedPairs* out, Stopper* stop);

 private:
  struct Count {
    uint32_t rare = 0, total = 0;
  };
  void add(const HeadSpan& span);
  void finish(uint64_t text, uint32_t least, uint32_t crowded, SharedPairs* out);
  void forget();

  Span<const uint32_t> heads_;
  std::vector<Count> counts_;       // of features that a text shares with each other one
  std::vector<uint32_t> partners_;  // those that have a count
};

}  // namespace fpstore
