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
void check_rows(const IndexedRows<Word, Tag>& rows, const RuleColumns& columns) {
  check_starts(rows.starts, rows.count);
  need(rows.tags.size >= rows.count + kSectionRoom / 2, "tags is too short");
  need(columns.tag_bits <= kTagBits, "a tag has at most 16 bits");
  need(words_of(static_cast<unsigned>(columns.permutation.size)) == rows.words,
       "rows of another width");
}

const uint8_t* bytes_of(Span<const uint16_t> tags) {
  return reinterpret_cast<const uint8_t*>(tags.data);
}

}  // namespace

void check_starts(Span<const uint64_t> starts, uint64_t rows) {
  need(starts.size >= 2 && starts[starts.size - 1] == rows, "the last start is the number of rows");
  for (size_t i = 0; i + 1 < starts.size; ++i) need(starts[i] <= starts[i + 1], "starts descend");
}

uint64_t largest_bucket(Span<const uint64_t> starts, uint64_t first, uint64_t end) {
  uint64_t largest = 0;
  for (uint64_t b = first; b < end; ++b) largest = std::max(largest, starts[b + 1] - starts[b]);
  return largest;
}

template <class Word, class Tag>
TableSearch::TableSearch(const IndexedRows<Word, Tag>& rows, const RuleColumns& columns)
    : words_(rows.words), radius_(columns.radius) {
  check_rows(rows, columns);
  bucket_bits_ = bits_of_buckets(rows.starts);
  tag_mask_ = static_cast<uint16_t>(0xFFFFu << (kTagBits - columns.tag_bits));
  inverse_ = permutation_of(columns.permutation.data, columns.permutation.size, true);
  const size_t tables = columns.flips.size();
  need(tables && columns.both.size() == tables && columns.bucket_masks.size == tables * words_ &&
           columns.tag_masks.size == tables * words_,
       "one of each for each table");
  for (size_t i = 0; i < tables; ++i) {
    TableRule rule{{}, {}, columns.flips[i], columns.both[i]};
    memcpy(rule.bucket_mask, columns.bucket_masks.data + i * words_, 8 * words_);
    memcpy(rule.tag_mask, columns.tag_masks.data + i * words_, 8 * words_);
    need(rule.both >= rule.flips, "both is at least flips");
    rules_.push_back(rule);
  }
}

void TableSearch::more(PairSink* sink, Stopper* stop) {
  const InUse used(busy_);
  need(!stopped_, "it was stopped: what it had found is lost");
  stopped_ = true;
  done_ = add(sink, stop);
  if (stop && stop->ended) throw Interrupted();
  stopped_ = false;
}

PairJoin::PairJoin(const JoinedRows& side, const RuleColumns& columns, uint64_t first, uint64_t end,
                   const std::optional<JoinedRows>& opposite)
    : TableSearch(side, columns) {
  JoinSide facing{};
  if (opposite) {
    check_rows(*opposite, columns);
    need(opposite->starts.size == side.starts.size, "the opposite set has other buckets");
    facing = {opposite->rows, opposite->starts.data, bytes_of(opposite->tags)};
  }
  need(first <= end && end < side.starts.size, "no such buckets");
  const uint64_t largest =
      opposite || rules_.back().both != 1 ? 0 : largest_bucket(side.starts, first, end);
  if (largest >= kSplitFrom) {
    places_.reset(new uint64_t[largest]);
    group_tags_.reset(new uint16_t[largest + kSectionRoom / 2]);
  }
  join_ = {{side.rows, side.starts.data, bytes_of(side.tags)},
           facing,
           opposite.has_value(),
           {places_.get(), group_tags_.get(), groups_.data()},
           rules_.data(),
           table(),
           bucket_bits_,
           radius_,
           tag_mask_,
           inverse_};
  place_.bucket = first;
  place_.end = end;
}

bool PairJoin::add(PairSink* sink, Stopper* stop) {
  return pair_kernels().join[words_ / 2](join_, &place_, sink, stop);
}

Linking::Linking(const LinkedRows& side, const RuleColumns& columns) : TableSearch(side, columns) {
  const size_t buckets = side.starts.size - 1;
  if (rules_.back().flips && buckets > 1) {
    live_.reset(new uint64_t[buckets]);
    for (size_t b = 0; b < buckets; ++b) live_[b] = side.starts[b + 1];
    stack_.reset(new uint64_t[side.count]);
  } else if (const uint64_t largest = largest_bucket(side.starts, 0, buckets);
             rules_.back().both == 1 && largest >= kSplitFrom) {
    moved_.reset(new uint64_t[largest * words_]);
    moved_tags_.reset(new uint16_t[largest]);
  }
  links_ = {side.rows,      side.starts.data,
            side.tags.data, rules_.data(),
            table(),        bucket_bits_,
            radius_,        tag_mask_,
            inverse_,       {moved_.get(), moved_tags_.get(), groups_.data()},
            live_.get(),    stack_.get()};
  place_.end = buckets;  // all of them are searched
}

bool Linking::add(PairSink* sink, Stopper* stop) {
  return pair_kernels().link[words_ / 2](links_, &place_, sink, stop);
}

}  // namespace fpstore
