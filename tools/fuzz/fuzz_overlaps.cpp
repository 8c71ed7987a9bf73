// Texts that share features: what list_texts and SharedCounter find is what a count of all pairs
// finds by the rule of pairing; spans outside of the heads are refused, and the counter counts on.
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "input.hpp"
#include "text/overlaps.hpp"

using namespace fpstore;

namespace {

using List = std::vector<uint32_t>;  // texts of a feature
// A text, another one, rare and all features that they share, crowded features of the text.
using Pair = std::tuple<uint64_t, uint64_t, int64_t, int64_t, uint32_t>;

// So many texts, in random order.
List some_texts(fuzz::Random* random, unsigned count) {
  uint8_t all[256];
  fuzz::shuffle(random, all, count);
  return {all, all + count};
}

// Lists of texts that are drawn from an input.
struct Drawn {
  explicit Drawn(fuzz::Input* input) : text_count(1 + input->byte()) {
    rule.most = 1 + input->byte() % (input->byte() % 4 ? 6 : kMaxPaired);
    rule.most_crowded = 1 + input->byte() % rule.most;
    fuzz::Random random(input->word(2));
    for (unsigned left = input->byte() % 24; left; --left) {
      // Lists of few texts make pairs that share much.
      lists.push_back(
          some_texts(&random, input->byte() % 2 ? std::min(text_count, 12u) : text_count));
      const size_t size = input->byte() % 4 ? input->byte() % 12 : input->byte();
      lists.back().resize(std::min(size, lists.back().size()));
    }
    order = some_texts(&random, text_count);
  }

  unsigned text_count;
  PairingRule rule;
  std::vector<List> lists;
  List order;  // all texts, by their ranks
};

// Adds some of the lists, as a call of the kernel does.
void add_lists(const Drawn& drawn, size_t first, size_t last, TextLists* all) {
  std::vector<uint64_t> sizes;
  List ranks;
  for (size_t i = first; i < last; ++i) {
    sizes.push_back(drawn.lists[i].size());
    for (const uint32_t text : drawn.lists[i])
      ranks.push_back(static_cast<uint32_t>(
          std::find(drawn.order.begin(), drawn.order.end(), text) - drawn.order.begin()));
  }
  TextLists made;
  list_texts(fuzz::exact(sizes).span(), fuzz::exact(ranks).get(), fuzz::exact(drawn.order).get(),
             drawn.rule, all->heads.size(), &made, nullptr);
  REQUIRE(made.texts.size() == made.head_spans.size());
  all->heads.insert(all->heads.end(), made.heads.begin(), made.heads.end());
  all->texts.insert(all->texts.end(), made.texts.begin(), made.texts.end());
  all->head_spans.insert(all->head_spans.end(), made.head_spans.begin(), made.head_spans.end());
}

// The texts of a call of SharedCounter.
struct Request {
  std::vector<uint64_t> numbers, counts, spans;
  List least;

  void add(uint64_t text, const std::vector<uint64_t>& its_spans, uint32_t its_least) {
    numbers.push_back(text);
    counts.push_back(its_spans.size());
    spans.insert(spans.end(), its_spans.begin(), its_spans.end());
    least.push_back(its_least);
  }
  std::vector<Pair> count(SharedCounter* counter) const {
    SharedPairs found;
    counter->count({fuzz::exact(numbers).span(), fuzz::exact(counts).get(),
                    fuzz::exact(spans).span(), fuzz::exact(least).get()},
                   &found, nullptr);
    const size_t n = found.texts.size();
    REQUIRE(found.others.size() == n && found.rare.size() == n && found.total.size() == n);
    REQUIRE(found.crowded.size() == n);
    std::vector<Pair> out;
    for (size_t i = 0; i < n; ++i)
      out.push_back(
          {found.texts[i], found.others[i], found.rare[i], found.total[i], found.crowded[i]});
    return out;
  }
};

// What the texts of a request share by the rule, list by list.
std::vector<Pair> slow_pairs(const Drawn& drawn, const Request& request) {
  std::vector<Pair> out;
  for (size_t i = 0; i < request.numbers.size(); ++i) {
    const uint64_t text = request.numbers[i];
    std::pmr::map<uint64_t, std::pair<int64_t, int64_t>> shared;  // rare and all features
    uint32_t crowded = 0;
    for (const List& list : drawn.lists) {
      const size_t before = std::find(list.begin(), list.end(), text) - list.begin();
      if (before == list.size()) continue;
      const bool is_crowded = before > drawn.rule.most;
      crowded += is_crowded;
      for (size_t other = 0; other < (is_crowded ? drawn.rule.most_crowded : before); ++other) {
        shared[list[other]].first += !is_crowded;
        ++shared[list[other]].second;
      }
    }
    for (const auto& [other, features] : shared)
      if (features.second >= request.least[i])
        out.push_back({text, other, features.first, features.second, crowded});
  }
  return out;
}

// Spans of any places: those outside of the heads, or with a text that there is not, are refused.
void count_any(fuzz::Input* input, const List& heads, unsigned text_count, SharedCounter* counter) {
  Request request;
  bool right = true;
  for (unsigned texts = input->byte() % 4; texts; --texts) {
    std::vector<uint64_t> spans(input->byte() % 3);
    for (uint64_t& word : spans) {
      word = input->byte() % 8 ? HeadSpan{input->byte() % (heads.size() + 2), 0, false}.word()
                               : input->word();
      word |= input->byte() % (heads.size() + 2) % (kMaxPaired + 1) << 1;
      const HeadSpan span = HeadSpan::of_word(word);
      for (uint64_t i = 0; i < span.count; ++i)
        right &= span.start + i < heads.size() && heads[span.start + i] < text_count;
      right &= span.start <= heads.size();
    }
    request.add(0, spans, input->byte() % 4);
  }
  if (input->byte() % 8 == 0) request.spans.push_back(0);
  if (input->byte() % 8 == 0 && !request.counts.empty())
    request.counts.back() += input->byte() % 8 - uint64_t{4};  // often far too many
  uint64_t left = request.spans.size();
  for (const uint64_t count : request.counts) {
    right &= count <= left;
    left -= std::min(count, left);
  }
  bool taken = true;
  try {
    request.count(counter);
  } catch (const std::invalid_argument&) {
    taken = false;
  }
  REQUIRE(taken == (right && !left));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  const Drawn drawn(&input);
  TextLists lists;
  const size_t cut = input.byte() % (drawn.lists.size() + 1);
  add_lists(drawn, 0, cut, &lists);
  add_lists(drawn, cut, drawn.lists.size(), &lists);
  List heads;
  for (const List& list : drawn.lists)
    for (size_t i = 0; i + 1 < list.size() && i < drawn.rule.most; ++i) heads.push_back(list[i]);
  REQUIRE(lists.heads == heads);
  std::pmr::map<uint64_t, std::vector<uint64_t>> spans;
  for (size_t i = 0; i < lists.texts.size(); ++i)
    spans[lists.texts[i]].push_back(lists.head_spans[i]);
  Request requests[2];
  for (const uint32_t text : drawn.order)
    requests[input.byte() % 2].add(text, spans[text], input.byte() % 4);
  heads.push_back(drawn.text_count + input.byte() % 2);  // in no list
  const auto exact_heads = fuzz::exact(heads);
  SharedCounter counter(exact_heads.span(), drawn.text_count);
  for (const Request& request : {requests[0], requests[1], requests[0]}) {
    REQUIRE(request.count(&counter) == slow_pairs(drawn, request));
    count_any(&input, heads, drawn.text_count, &counter);
  }
  return 0;
}
