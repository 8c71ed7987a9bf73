// Probes: the stages that look-ups go through, many at a time.
#pragma once
#include "search/index_search.hpp"
#include "search/probe_blocks.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr uint64_t kFetchKeys = 512;
constexpr uint64_t kFetchBlocks = 2;  // of a look-up, before it reads the first

template <class W>
inline Status bad_directory(const Item<W>& item, ProbeState<W>* state) {
  *state->fault =
      Fault{Status::bad_directory, UINT64_MAX, item.probe->table->block_count, item.end};
  state->at_fault = item.probe;
  return state->fault->status;
}

// The blocks of a look-up from the first that may hold the target, number b, to the first whose key
// no longer has the prefix. All of them are read, and their checksums cover the keys by which they
// were chosen.
template <class Blocks, class W = typename Blocks::W>
inline Status set_range(Item<W>* item, uint64_t b, ProbeState<W>* state) {
  const TableView& t = *item->probe->table;
  item->first = b;
  item->end = b + 1;
  if (FPSTORE_UNLIKELY(b == t.block_count)) {
    // Nothing is that large, if the last key is right: its block's checksum says so.
    ++state->counters->blocks;
    state->at_fault = item->probe;
    item->end = b;
    return Blocks::check(t, b - 1, state->fault);
  }
  if (FPSTORE_LIKELY(!item->has_prefix(t.keys[b]) || b + 1 == t.block_count)) return Status::ok;
  // Above 64 bits, several keys may begin with the last word that has the prefix: the block behind
  // them ends the range.
  if (W::kWide && item->last == ~uint64_t{0}) {
    item->end = t.block_count;
    return Status::ok;
  }
  const uint64_t behind = item->last + W::kWide;
  if (FPSTORE_LIKELY(t.keys[b + 1] >= behind)) {
    item->end = b + 2;
    return Status::ok;
  }
  uint64_t low, high;
  if (FPSTORE_UNLIKELY(!directory_range(t, behind, &low, &high)))
    return bad_directory(*item, state);
  if (low < b) low = b;
  const uint64_t e = find_block<Blocks>(t, behind, low, high < low ? low : high);
  if (FPSTORE_UNLIKELY(!encloses(t, e, behind))) return bad_directory(*item, state);
  item->end = e == t.block_count ? e : e + 1;
  return Status::ok;
}

// The same for a look-up whose part of the key index is known.
template <class Blocks, class W = typename Blocks::W>
inline Status find_range(Item<W>* item, ProbeState<W>* state) {
  const TableView& t = *item->probe->table;
  const uint64_t b = find_block<Blocks>(t, item->target, item->first, item->end);
  if (FPSTORE_UNLIKELY(!encloses(t, b, item->target))) return bad_directory(*item, state);
  return set_range<Blocks>(item, b, state);
}

// Blocks on their way to being read, kUnits together; those that were not fetched before are now.
template <class W>
struct BlockFeeder {
  const Emitter<W>& out;
  ProbeState<W>* state;
  unsigned units = 0;

  template <class Blocks>
  Status look(uint64_t b, const Item<W>& item) {
    if (FPSTORE_UNLIKELY(b - item.first >= kFetchBlocks)) {
      prefetch_block(*item.probe->table, b);
      if (state->fetch)
        ask_ahead(block_at(*item.probe->table, b), item.probe->table->block_bytes, state);
    }
    state->units[units++] = Unit<W>{b, &item};
    return units < kUnits ? Status::ok : flush<Blocks>();
  }
  template <class Blocks>
  Status flush() {
    const unsigned n = units;
    units = 0;
    return run_units<Blocks>(out, n, state);
  }
};

// Look-up by look-up.
template <class Blocks, class W = typename Blocks::W>
inline Status read_plainly(const Item<W>* items, unsigned n, BlockFeeder<W>* to) {
  for (const Item<W>* item = items; item < items + n; ++item)
    for (uint64_t b = item->first; b < item->end; ++b) {
      FPSTORE_TRY(to->template look<Blocks>(b, *item));
    }
  return Status::ok;
}

// Whether look-ups ask for their pages ahead, as the prober's page watch decides for some at a
// time.
class PageCheck {
 public:
  explicit PageCheck(const ProbeOptions& options) : pages_(options.pages), always_(options.fetch) {}
  bool watched() const { return pages_; }
  // For the next `lookups` look-ups; touch() reads the first page that they need, if a check is
  // due.
  template <class Touch>
  bool next(uint64_t lookups, Touch touch) {
    finish();
    const auto plan = pages_->plan(static_cast<unsigned>(lookups));
    checked_ = plan == PageWatch::Plan::check;
    if (!checked_) return always_ || plan == PageWatch::Plan::fetch;
    faults_ = major_faults();
    touch();
    waited_ = major_faults() != faults_;
    return always_ || waited_;
  }
  // What a check came to is known when its look-ups have been answered.
  void finish() {
    if (checked_) pages_->note(waited_ || major_faults() != faults_);
    checked_ = false;
  }

 private:
  PageWatch* pages_;
  bool always_, checked_ = false, waited_ = false;
  uint64_t faults_ = 0;
};

// Reads the pages that a look-up begins with.
template <class Blocks, class W = typename Blocks::W>
inline void touch(const Item<W>& item) {
  const TableView& t = *item.probe->table;
  uint64_t low, high;
  if (!directory_range(t, item.target, &low, &high)) return;
  const uint64_t b = find_block<Blocks>(t, item.target, low, high);
  if (b < t.block_count) (void)*static_cast<const volatile uint8_t*>(block_at(t, b));
}

// Look-ups on their way through the stages directory, keys, blocks, in groups. Each stage fetches
// ahead what the next one reads, a group later, so that memory is busy while blocks are read. They
// may be of several tables.
template <class Blocks>
class Pipeline {
 public:
  using W = typename Blocks::W;

  // So many look-ups will be added.
  Pipeline(const Emitter<W>& out, ProbeState<W>* state, uint64_t expected)
      : out_(out), state_(state), expected_(expected), check_(out.options) {
    state->fetch = out.options.fetch;
  }

  // Whether those that follow are nearly by ascending target, in one table.
  void set_nearly_sorted(bool nearly) { nearly_sorted_ = nearly; }

  Status add(const TableProbe* probe, uint64_t target, uint64_t last, const typename W::Row& base,
             uint64_t query) {
    Item<W>& item = groups_[now_][count_];
    item.probe = probe;
    item.target = target;
    item.last = last;
    item.base = base;
    item.index = static_cast<uint32_t>(query);
    if (count_ == 0 && check_.watched()) watch(item);
    fetch_directory(item);
    if (++count_ < kGroupItems) return Status::ok;
    return turn();
  }

  // Adds a look-up in a table with a filter: one that finds nothing mostly goes no further than
  // this.
  Status ask(const TableProbe* probe, uint64_t target, const typename W::Row& base,
             uint64_t query) {
    const uint64_t word = find_word(*probe->filter, target);
    if (word == kNoWord) return Status::ok;
    fetch_word(*probe->filter, word);
    waiting_[asked_++ % kWaiting] = {probe, target, word, query, base};
    return asked_ - taken_ < kWaiting ? Status::ok : take_waiting();
  }

  // Takes all through all stages.
  Status flush() {
    Status status = Status::ok;
    while (taken_ < asked_ && status == Status::ok) status = take_waiting();
    counts_[now_] = count_;
    for (unsigned age = 2; age-- > 0 && status == Status::ok;) status = direct(age);
    for (unsigned age = 3; age-- > 0 && status == Status::ok;) {
      status = find(age);
      fetch_blocks(age);
    }
    for (unsigned age = 4; age-- > 0 && status == Status::ok;) status = read(age);
    check_.finish();
    count_ = 0;
    return status;
  }

 private:
  static constexpr unsigned kGroupItems = W::kWide ? 16 : 32, kGroups = 4;

  // A look-up that waits for the word of its filter.
  struct Waiting {
    const TableProbe* probe;
    uint64_t target, word, query;
    typename W::Row base;
  };
  static constexpr unsigned kWaiting = 64;

  // Adds the look-up that has waited longest, if it passes.
  Status take_waiting() {
    const Waiting& first = waiting_[taken_++ % kWaiting];
    if (!may_hold(*first.probe->filter, first.target, first.word)) return Status::ok;
    return add(first.probe, first.target, first.target | ~top_mask(first.probe->prefix_bits),
               first.base, first.query);
  }

  // A group is full: those before it go through their next stage.
  Status turn() {
    counts_[now_] = count_;
    Status status = find(2);
    if (status == Status::ok) status = direct(1);
    // A prefetch waits for the translation of its address. Where blocks are far apart, those of a
    // group wait together; where they are near each other, each goes between two that are read, so
    // that memory is always busy.
    if (!nearly_sorted_) fetch_blocks(2);
    if (status == Status::ok) status = read(3);
    now_ = (now_ + 1) % kGroups;
    count_ = 0;
    return status;
  }

  unsigned group(unsigned age) const { return (now_ + kGroups - age) % kGroups; }

  // Decides whether the look-ups from this one on ask for their pages ahead.
  void watch(const Item<W>& item) {
    const uint64_t left = expected_ - counted_;
    counted_ += kGroupItems;
    state_->fetch =
        check_.next(left < kGroupItems ? left : kGroupItems, [&] { touch<Blocks>(item); });
  }

  void fetch_directory(const Item<W>& item) {
    const TableView& t = *item.probe->table;
    const uint64_t* slot = t.directory + leading_bits(item.target, t.directory_bits);
    fetch_line(slot);
    if (state_->fetch) ask_ahead(slot, 2 * sizeof *slot, state_);
  }

  // The parts of the key index that the directory tells.
  Status direct(unsigned age) {
    Item<W>* const items = groups_[group(age)];
    for (unsigned i = 0; i < counts_[group(age)]; ++i) {
      Item<W>* const item = items + i;
      const TableView& t = *item->probe->table;
      if (FPSTORE_UNLIKELY(!directory_range(t, item->target, &item->first, &item->end)))
        return bad_directory(*item, state_);
      fetch_line(t.keys + item->first);
      fetch_line(t.keys + item->first + 8);
      fetch_line(t.keys + item->end);
      // Of a longer range, which skewed sets have, a search touches little.
      if (state_->fetch && item->end - item->first <= kFetchKeys)
        ask_ahead(t.keys + item->first, (item->end - item->first + 1) * sizeof *t.keys, state_);
    }
    return Status::ok;
  }

  // The blocks of look-ups.
  Status find(unsigned age) {
    Item<W>* const items = groups_[group(age)];
    const unsigned n = counts_[group(age)];
    for (unsigned i = 0; i < n; ++i) {
      FPSTORE_TRY(find_range<Blocks>(items + i, state_));
    }
    return Status::ok;
  }

  void fetch_blocks(unsigned age) {
    const Item<W>* const items = groups_[group(age)];
    const unsigned n = counts_[group(age)];
    for (unsigned i = 0; i < n; ++i) fetch_first(items[i], state_);
  }

  Status read(unsigned age) {
    const Item<W>* const items = groups_[group(age)];
    const unsigned n = counts_[group(age)];
    counts_[group(age)] = 0;
    if (n == 0) return Status::ok;
    // Between those that are read, the blocks of the next group are fetched: half of them before as
    // many are opened, the others after, since a processor waits for few lines at a time.
    const Item<W>* next =
        nearly_sorted_ && age == kGroups - 1 ? groups_[group(kGroups - 2)] : nullptr;
    // Look-ups that follow each other may share a block.
    const unsigned step = next || Blocks::kReached ? Blocks::kTogether : n;
    Status status = Status::ok;
    for (unsigned i = 0; i < n && status == Status::ok; i += step) {
      if (next) {
        for (unsigned j = 0; j < step - step / 2; ++j) fetch_first(*next++, state_);
        state_->ahead = next;
        state_->ahead_count = step / 2;
        next += step / 2;
      }
      status = read_some(items + i, n - i < step ? n - i : step);
      fetch_rest(state_);
    }
    return status;
  }

  Status read_some(const Item<W>* items, unsigned n) {
    if constexpr (Blocks::kReached) {
      return read_reached(*items);
    } else {
      BlockFeeder<W> feeder{out_, state_};
      const Status status = read_plainly<Blocks>(items, n, &feeder);
      return status == Status::ok ? feeder.template flush<Blocks>() : status;
    }
  }

  // A look-up whose places are reached without decoding. Of a query's look-ups with bits flipped,
  // several often end in one block.
  Status read_reached(const Item<W>& item) {
    if (FPSTORE_UNLIKELY(should_stop(out_.options.stop, kBlockWork)))
      return interrupted(state_->fault);
    const TableView* const t = item.probe->table;
    for (uint64_t b = item.first; b < item.end; ++b) {
      Status status = Status::ok;
      if (opened_.table != t || opened_.block != b) {
        opened_ = {t, b, {}};
        ++state_->counters->blocks;
        unsigned bad;
        status = Blocks::open(&opened_, 1, *state_->work, &bad, state_->fault);
      }
      if (status == Status::ok)
        status = expects_many<Blocks>(*item.probe)
                     ? look_at_all<Blocks>(out_, item, opened_, 0, state_)
                     : look_into<Blocks>(out_, item, opened_, 0, state_);
      if (FPSTORE_UNLIKELY(status != Status::ok)) {
        state_->at_fault = item.probe;
        opened_.table = nullptr;
        return status;
      }
    }
    return Status::ok;
  }

  const Emitter<W>& out_;
  ProbeState<W>* state_;
  uint64_t expected_, counted_ = 0;  // look-ups, and those that the page watch has counted
  PageCheck check_;
  bool nearly_sorted_ = false;
  typename Blocks::OpenBlock opened_{};  // the last block that was opened
  unsigned now_ = 0, count_ = 0;         // the group that is filled, and how many it has
  unsigned counts_[kGroups] = {};
  uint64_t asked_ = 0,
           taken_ = 0;  // look-ups that have asked a filter, and how many of these were taken
  Waiting waiting_[kWaiting];
  Item<W> groups_[kGroups][kGroupItems];
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
