#include "pairs/search.hpp"

#include <algorithm>

#include "isa/kernels.hpp"
#include "isa/steps.hpp"

namespace fpstore {
namespace {

unsigned bits_of_buckets(Span<const uint64_t> starts) {
  unsigned bits = 0;
  while (bits < kMaxBucketBits && (size_t{1} << bits) + 1 < starts.size) ++bits;
  need((size_t{1} << bits) + 1 == starts.size, "the number of buckets is a power of two");
  return bits;
}

template <class Word, class Tag>
void check_rows(const IndexedRows<Word, Tag>& rows, const JoinRules& rules) {
  check_starts(rows.starts, rows.count);
  need(rows.tags.size >= rows.count + kSectionRoom / 2, "tags is too short");
  need(rows.words == rules.words, "rows of another width");
}

const uint8_t* bytes_of(Span<const uint16_t> tags) {
  return reinterpret_cast<const uint8_t*>(tags.data);
}

}  // namespace

void check_ascent(Span<const uint64_t> starts) {
  for (size_t i = 0; i + 1 < starts.size; ++i) need(starts[i] <= starts[i + 1], "starts descend");
}

void check_starts(Span<const uint64_t> starts, uint64_t rows) {
  need(starts.size >= 2 && starts[starts.size - 1] == rows, "the last start is the number of rows");
  check_ascent(starts);
}

uint64_t largest_bucket(Span<const uint64_t> starts, uint64_t first, uint64_t end) {
  uint64_t largest = 0;
  for (uint64_t b = first; b < end; ++b) largest = std::max(largest, starts[b + 1] - starts[b]);
  return largest;
}

JoinRules::JoinRules(Span<const uint8_t> permutation, Span<const uint64_t> bucket_masks,
                     Span<const uint64_t> tag_masks, const std::vector<unsigned>& flips,
                     const std::vector<unsigned>& both, unsigned tag_bits, unsigned radius)
    : words(words_of(static_cast<unsigned>(permutation.size))),
      radius(radius),
      inverse(permutation_of(permutation.data, permutation.size, true)) {
  need(tag_bits <= kTagBits, "a tag has at most 16 bits");
  tag_mask = static_cast<uint16_t>(0xFFFFu << (kTagBits - tag_bits));
  const size_t count = flips.size();
  need(count && both.size() == count && bucket_masks.size == count * words &&
           tag_masks.size == count * words,
       "one of each for each table");
  for (size_t i = 0; i < count; ++i) {
    TableRule rule{{}, {}, flips[i], both[i]};
    memcpy(rule.bucket_mask, bucket_masks.data + i * words, 8 * words);
    memcpy(rule.tag_mask, tag_masks.data + i * words, 8 * words);
    need(rule.both >= rule.flips, "both is at least flips");
    tables.push_back(rule);
  }
}

void PairSearch::more(PairSink* sink, Stopper* stop) {
  const InUse used(busy_);
  need(!stopped_, "it was stopped: what it had found is lost");
  stopped_ = true;
  done_ = add(sink, stop);
  if (stop && stop->ended) throw Interrupted();
  stopped_ = false;
}

PairJoin::PairJoin(const JoinedRows& side, const JoinRules& rules, uint64_t first, uint64_t end,
                   const std::optional<JoinedRows>& opposite)
    : PairSearch(rules.words) {
  check_rows(side, rules);
  JoinSide facing{};
  if (opposite) {
    check_rows(*opposite, rules);
    need(opposite->starts.size == side.starts.size, "the opposite set has other buckets");
    facing = {opposite->rows, opposite->starts.data, bytes_of(opposite->tags)};
  }
  need(first <= end && end < side.starts.size, "no such buckets");
  const uint64_t largest =
      opposite || rules.tables.back().both != 1 ? 0 : largest_bucket(side.starts, first, end);
  if (largest >= kSplitFrom) {
    places_.reset(new uint64_t[largest]);
    group_tags_.reset(new uint16_t[largest + kSectionRoom / 2]);
    group_starts_.reset(new uint64_t[kGroupStarts]);
  }
  join_ = {{side.rows, side.starts.data, bytes_of(side.tags)},
           facing,
           opposite.has_value(),
           {places_.get(), group_tags_.get(), group_starts_.get()},
           rules.tables.data(),
           static_cast<unsigned>(rules.tables.size() - 1),
           bits_of_buckets(side.starts),
           rules.radius,
           rules.tag_mask,
           rules.inverse};
  place_.bucket = first;
  place_.end = end;
}

bool PairJoin::add(PairSink* sink, Stopper* stop) {
  return pair_kernels().join[words_ / 2](join_, &place_, sink, stop);
}

Linking::Linking(const LinkedRows& side, const JoinRules& rules) : PairSearch(rules.words) {
  check_rows(side, rules);
  const size_t buckets = side.starts.size - 1;
  if (rules.tables.back().flips && buckets > 1) {
    live_.reset(new uint64_t[buckets]);
    for (size_t b = 0; b < buckets; ++b) live_[b] = side.starts[b + 1];
    stack_.reset(new uint64_t[side.count]);
  } else if (const uint64_t largest = largest_bucket(side.starts, 0, buckets);
             rules.tables.back().both == 1 && largest >= kSplitFrom) {
    moved_.reset(new uint64_t[largest * words_]);
    moved_tags_.reset(new uint16_t[largest]);
    group_starts_.reset(new uint64_t[kGroupStarts]);
  }
  links_ = {side.rows,
            side.starts.data,
            side.tags.data,
            rules.tables.data(),
            static_cast<unsigned>(rules.tables.size() - 1),
            bits_of_buckets(side.starts),
            rules.radius,
            rules.tag_mask,
            rules.inverse,
            {moved_.get(), moved_tags_.get(), group_starts_.get()},
            live_.get(),
            stack_.get()};
  place_.end = buckets;  // all of them are searched
}

bool Linking::add(PairSink* sink, Stopper* stop) {
  return pair_kernels().link[words_ / 2](links_, &place_, sink, stop);
}

PartSearch::PartSearch(std::vector<PartedRows> sides, const JoinRules& rules, unsigned bucket_bits,
                       unsigned part_bits, bool linked)
    : PairSearch(sides.at(0).words),
      sides_(std::move(sides)),
      rules_(rules),
      part_bits_(part_bits),
      bits_(bucket_bits - part_bits),
      linked_(linked) {
  need(part_bits <= bucket_bits && bucket_bits <= kMaxBucketBits, "no such buckets");
  need(sides_.size() <= (linked ? 1 : 2), "one set is linked, or two are joined");
  need(words_ == rules.words, "rows of another width");
  need(!rules.tables.back().flips, "buckets are compared that differ");
  for (const PartedRows& side : sides_) {
    need(side.words == words_ && side.starts.size == sides_[0].starts.size,
         "both sides have the same parts");
    need(side.starts.size && side.starts[side.starts.size - 1] <= side.count,
         "the parts run past the rows");
    check_ascent(side.starts);
    const uint64_t most = largest_bucket(side.starts, 0, side.starts.size - 1);
    const bool moved = linked || !side.ordered;
    parts_.push_back({std::unique_ptr<uint64_t[]>(moved ? new uint64_t[most * words_] : nullptr),
                      std::unique_ptr<uint16_t[]>(new uint16_t[most + kSectionRoom / 2]),
                      std::unique_ptr<uint64_t[]>(new uint64_t[(size_t{1} << bits_) + 2]), nullptr,
                      0});
  }
}

bool PartSearch::sort(Stopper* stop) {
  for (size_t i = 0; i < sides_.size(); ++i) {
    const PartedRows& side = sides_[i];
    Part& part = parts_[i];
    const uint64_t* const from = side.rows + side.starts[part_] * words_;
    part.count = side.starts[part_ + 1] - side.starts[part_];
    if (should_stop(stop, part.count)) return false;
    sort_part({from, words_, part.count, part_bits_, bits_}, part.rows.get(), part.starts.get(),
              part.tags.get());
    part.sorted = part.rows ? part.rows.get() : from;
  }
  return true;
}

template <class Word, class Tag>
IndexedRows<Word, Tag> PartSearch::indexed(size_t side, Word* rows) const {
  const Part& part = parts_[side];
  return {rows,
          part.count,
          words_,
          {part.starts.get(), (size_t{1} << bits_) + 1},
          {part.tags.get(), part.count + kSectionRoom / 2}};
}

std::unique_ptr<PairSearch> PartSearch::search() const {
  if (linked_)
    return std::make_unique<Linking>(indexed<uint64_t, uint16_t>(0, parts_[0].rows.get()), rules_);
  const auto side = [&](size_t i) {
    return indexed<const uint64_t, const uint16_t>(i, parts_[i].sorted);
  };
  return std::make_unique<PairJoin>(
      side(0), rules_, 0, uint64_t{1} << bits_,
      sides_.size() > 1 ? std::optional<JoinedRows>(side(1)) : std::nullopt);
}

bool PartSearch::add(PairSink* sink, Stopper* stop) {
  for (; part_ + 1 < sides_[0].starts.size; ++part_) {
    if (!search_) {
      if (!sort(stop)) return false;
      const auto is_empty = [](const Part& part) { return !part.count; };
      if (std::any_of(parts_.begin(), parts_.end(), is_empty)) continue;
      search_ = search();
    }
    search_->more(sink, stop);
    if (!search_->done()) return false;
    search_.reset();
  }
  return true;
}

}  // namespace fpstore
