// Probes whose look-ups are dense enough in a window of a table to share blocks: the window is read
// in order, and a block is opened once for all look-ups that it concerns.
#pragma once
#include "search/pipeline.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr uint64_t kNearKeys = 16;   // among which the next block is mostly found
constexpr unsigned kIndexBits = 24;  // the low bits of a word tell whose look-up it is
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;

// Look-ups in a table, by ascending target. The leading bits of a word are the target, the low
// kIndexBits the place of its query. Prefixes are so short that the two do not overlap.
template <class Row>
struct SortedLookups {
  const TableProbe* probe;
  const uint64_t* words;
  uint64_t count;
  uint64_t mask;            // of the prefix
  const Row* bases;         // the permuted queries, by ascending leading bits
  const uint32_t* numbers;  // of the queries

  uint64_t target(uint64_t i) const { return words[i] & mask; }
  uint64_t place(uint64_t i) const { return words[i] & kIndexMask; }
  uint64_t last(uint64_t i) const { return words[i] | ~mask; }
};

template <class Blocks>
class Sweep {
 public:
  using W = typename Blocks::W;
  using Row = typename W::Row;
  using OpenBlock = typename Blocks::OpenBlock;

  Sweep(const Emitter<W>& out, const SortedLookups<Row>& lookups, ProbeState<W>* state)
      : out_(out),
        lookups_(lookups),
        t_(*lookups.probe->table),
        state_(state),
        check_(out.options) {}

  Status run() {
    state_->at_fault = lookups_.probe;
    uint64_t low = 0, high = 0;
    for (;;) {
      unsigned n = 0;
      for (; n < Blocks::kTogether; ++n) {
        if (low == high) {
          if (high == lookups_.count) break;
          FPSTORE_TRY(find(lookups_.target(high)));
        }
        // All that is left is greater than the last key, of which a block says that it is right.
        if (at_ == t_.block_count) break;
        const uint64_t key = t_.keys[at_], before = high;
        while (high < lookups_.count && lookups_.target(high) <= key) ++high;
        if (check_.watched())
          state_->fetch = check_.next(high - before, [&] {
            (void)*static_cast<const volatile uint8_t*>(block_at(t_, at_));
          });
        fetch_ahead();
        units_[n] = OpenBlock{&t_, at_++, {}};
        low_[n] = low;
        high_[n] = high;
        // Above 64 bits, several blocks may have entries with the leading word of a key.
        while (low < high && (W::kWide ? lookups_.last(low) < key : lookups_.last(low) <= key))
          ++low;
      }
      if (n) {
        const Status status = read(n);
        check_.finish();
        if (FPSTORE_UNLIKELY(status != Status::ok)) return status;
      }
      if (at_ == t_.block_count && (low < lookups_.count)) {
        ++state_->counters->blocks;
        return Blocks::check(t_, at_ - 1, state_->fault);
      }
      if (low == lookups_.count) return Status::ok;
    }
  }

 private:
  static constexpr uint64_t kBlocksAhead = 8;
  static constexpr unsigned kChunk = 32;  // look-ups whose places are found before any is gone into

  // Moves on to the block that may hold a target greater than all before: mostly a few keys on.
  Status find(uint64_t target) {
    const uint64_t n = t_.block_count - at_ < kNearKeys ? t_.block_count - at_ : kNearKeys;
    uint64_t b = at_ + Blocks::count_below(t_.keys + at_, n, target);
    if (b - at_ == kNearKeys) {
      uint64_t low, high;
      if (FPSTORE_UNLIKELY(!directory_range(t_, target, &low, &high))) return bad(high);
      b = find_block<Blocks>(t_, target, low, high);
      if (FPSTORE_UNLIKELY(b < at_)) return bad(high);
    }
    if (FPSTORE_UNLIKELY(!encloses(t_, b, target))) return bad(b);
    at_ = b;
    return Status::ok;
  }

  Status bad(uint64_t high) {
    *state_->fault = Fault{Status::bad_directory, UINT64_MAX, t_.block_count, high};
    return state_->fault->status;
  }

  // Most blocks that follow will be read, too.
  void fetch_ahead() {
    uint64_t b = fetched_ > at_ ? fetched_ : at_;
    for (; b < t_.block_count && b <= at_ + kBlocksAhead; ++b) {
      prefetch_block(t_, b);
      if (FPSTORE_UNLIKELY(state_->fetch)) ask_ahead(block_at(t_, b), t_.block_bytes, state_);
    }
    fetched_ = b;
  }

  Status read(unsigned n) {
    unsigned bad = 0;
    uint64_t uses = 0;
    for (unsigned k = 0; k < n; ++k) uses += high_[k] - low_[k];
    if (FPSTORE_UNLIKELY(should_stop(out_.options.stop, n * kBlockWork + uses * kLookupWork)))
      return interrupted(state_->fault);
    Status status = Blocks::open(units_, n, *state_->work, &bad, state_->fault);
    for (unsigned k = 0; k < n && status == Status::ok; ++k) {
      ++state_->counters->blocks;
      status = worth_expanding<Blocks>(*lookups_.probe, units_[k].block, high_[k] - low_[k])
                   ? expand(k)
                   : look(k);
    }
    return status;
  }

  Item<W> item(uint64_t i) const {
    const uint64_t place = lookups_.place(i);
    return Item<W>{
        lookups_.probe,         lookups_.target(i), lookups_.last(i), lookups_.bases[place], 0, 0,
        lookups_.numbers[place]};
  }

  // Compares what has the prefixes of the look-ups in an expanded block.
  Status expand(unsigned k) {
    LeadingWords entries;
    FPSTORE_TRY(expand_block<Blocks>(units_[k], k, &entries, state_));
    state_->counters->candidates += (high_[k] - low_[k]) * entries.n;
    for (uint64_t i = low_[k]; i < high_[k]; i += kChunk)
      if (FPSTORE_UNLIKELY(!filter(i, high_[k] - i < kChunk ? high_[k] : i + kChunk, entries)))
        return no_memory(state_->fault);
    return Status::ok;
  }

  // Compares the entries of a block with the look-ups from first to end. Whether anything is near
  // cannot be predicted. So the first loop has no branch, and the searches of several look-ups
  // overlap; the second one goes through those that may have a match.
  bool filter(uint64_t first, uint64_t end, const LeadingWords& entries) {
    constexpr unsigned kLast = Blocks::kAtOnce - 1;
    uint32_t places[kChunk];
    uint64_t left[kChunk];
    unsigned count = 0;
    for (uint64_t i = first; i < end; ++i) {
      const uint32_t at = Blocks::lower_bound(entries, lookups_.target(i));
      const uint64_t* const values =
          entries.values + at;  // what lies past the entries does not matter: see below
      const bool near = Blocks::any_near(values, leading_word(lookups_.bases[lookups_.place(i)]),
                                         out_.options.radius);
      const bool more = values[kLast] <= lookups_.last(i);
      places[count] = at;
      left[count] = i;
      count += static_cast<unsigned>(near) | static_cast<unsigned>(more);
    }
    for (unsigned c = 0; c < count; ++c)
      if (FPSTORE_UNLIKELY(!Blocks::filter_values(out_, item(left[c]), entries, places[c])))
        return false;
    return true;
  }

  // Finds the place of each look-up.
  Status look(unsigned k) {
    for (uint64_t i = low_[k]; i < high_[k]; ++i) {
      FPSTORE_TRY(look_into<Blocks>(out_, item(i), units_[k], k, state_));
    }
    return Status::ok;
  }

  const Emitter<W>& out_;
  const SortedLookups<Row>& lookups_;
  const TableView& t_;
  ProbeState<W>* state_;
  PageCheck check_;
  uint64_t at_ = 0, fetched_ = 0;
  OpenBlock units_[Blocks::kTogether];
  uint64_t low_[Blocks::kTogether], high_[Blocks::kTogether];  // the look-ups of each
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
