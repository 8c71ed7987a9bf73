// Probes: the stages that look-ups go through, many at a time.
#pragma once
#include "search/index_search.hpp"
#include "search/probe_blocks.hpp"

namespace fpstore {
namespace {

constexpr uint64_t kFetchKeys = 512;
constexpr uint64_t kFetchBlocks = 2;  // of a look-up, before it reads the first
constexpr uint64_t kNearKeys = 16;    // of sorted look-ups: where the next one's block is nearly always

template <class W>
inline Status bad_directory(const Item<W>& item, ProbeState<W>* state) {
  *state->fault = Fault{Status::bad_directory, UINT64_MAX, item.probe->table->block_count, item.end};
  state->at_fault = item.probe;
  return state->fault->status;
}

// The blocks of a look-up from the first that may hold the target, number b, to the first whose key no longer has the prefix. All of
// them are read, and their checksums cover the keys by which they were chosen.
template <class Blocks, class W = typename Blocks::W>
inline Status set_range(Item<W>* item, uint64_t b, ProbeState<W>* state) {
  const TableView& t = *item->probe->table;
  item->first = b;
  item->end = b + 1;
  if (__builtin_expect(b == t.block_count, 0)) {
    // Nothing is that large, if the last key is right: its block's checksum says so.
    ++state->counters->blocks;
    state->at_fault = item->probe;
    item->end = b;
    return Blocks::check(t, b - 1, state->fault);
  }
  if (__builtin_expect(!item->has_prefix(t.keys[b]) || b + 1 == t.block_count, 1)) return Status::ok;
  // Above 64 bits, several keys may begin with the last word that has the prefix: the block behind them ends the range.
  if (W::kWide && item->last == ~uint64_t{0}) {
    item->end = t.block_count;
    return Status::ok;
  }
  const uint64_t behind = item->last + W::kWide;
  if (__builtin_expect(t.keys[b + 1] >= behind, 1)) {
    item->end = b + 2;
    return Status::ok;
  }
  uint64_t low, high;
  if (__builtin_expect(!directory_range(t, behind, &low, &high), 0)) return bad_directory(*item, state);
  if (low < b) low = b;
  const uint64_t e = find_block<Blocks>(t, behind, low, high < low ? low : high);
  if (__builtin_expect(!encloses(t, e, behind), 0)) return bad_directory(*item, state);
  item->end = e == t.block_count ? e : e + 1;
  return Status::ok;
}

// The same for a look-up whose part of the key index is known.
template <class Blocks, class W = typename Blocks::W>
inline Status find_range(Item<W>* item, ProbeState<W>* state) {
  const TableView& t = *item->probe->table;
  const uint64_t b = find_block<Blocks>(t, item->target, item->first, item->end);
  if (__builtin_expect(!encloses(t, b, item->target), 0)) return bad_directory(*item, state);
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
    if (__builtin_expect(b - item.first >= kFetchBlocks, 0)) {
      prefetch_block(*item.probe->table, b);
      if (state->fetch) ask_ahead(block_at(*item.probe->table, b), item.probe->table->block_bytes, state);
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
      const Status status = to->template look<Blocks>(b, *item);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
  return Status::ok;
}

// Block by block, so that the look-ups in one block stand together; both ends of their ranges ascend.
template <class Blocks, class W = typename Blocks::W>
inline Status read_sorted(const Item<W>* items, unsigned n, BlockFeeder<W>* to) {
  const Item<W> *low = items, *high = items;
  for (uint64_t b = 0; low < items + n; ++b) {
    if (low == high && b < low->first) b = low->first;
    while (high < items + n && high->first <= b) ++high;
    while (low < high && low->end <= b) ++low;
    for (const Item<W>* item = low; item < high; ++item) {
      if (item->end <= b) continue;
      const Status status = to->template look<Blocks>(b, *item);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
  }
  return Status::ok;
}

// Reads the pages that a look-up begins with.
template <class Blocks, class W = typename Blocks::W>
inline void touch(const Item<W>& item) {
  const TableView& t = *item.probe->table;
  uint64_t low, high;
  if (!directory_range(t, item.target, &low, &high)) return;
  const uint64_t b = find_block<Blocks>(t, item.target, low, high);
  if (b < t.block_count) (void)*static_cast<const volatile uint8_t*>(block_at(t, b));
}

// How look-ups follow each other: as they were asked; nearly by ascending target, in one table; so, and so many that blocks are shared.
enum class Order { asked, near, dense };

// Look-ups on their way through the stages directory, keys, blocks, in groups. Each stage fetches ahead what the next one reads, a
// group later, so that memory is busy while blocks are read. They may be of several tables.
template <class Blocks>
class Pipeline {
 public:
  using W = typename Blocks::W;

  // So many look-ups will be added.
  Pipeline(const Emitter<W>& out, ProbeState<W>* state, uint64_t expected) : out_(out), state_(state), expected_(expected) {
    state->fetch = out.options.fetch;
  }

  // Of those that follow.
  void set_order(Order order) {
    order_ = order;
    at_ = 0;
  }

  Status add(const TableProbe* probe, uint64_t target, uint64_t last, const typename W::Row& base, uint64_t query) {
    Item<W>& item = groups_[now_][count_];
    item.probe = probe;
    item.target = target;
    item.last = last;
    item.base = base;
    item.index = static_cast<uint32_t>(query);
    if (count_ == 0 && out_.options.pages) watch(item);
    if (order_ != Order::dense) fetch_directory(item);
    if (++count_ < kGroupItems) return Status::ok;
    return turn();
  }

  // Takes all through all stages.
  Status flush() {
    counts_[now_] = count_;
    Status status = Status::ok;
    for (unsigned age = 2; age-- > 0 && status == Status::ok;) status = direct(age);
    for (unsigned age = 3; age-- > 0 && status == Status::ok;) {
      status = find(age);
      fetch_blocks(age);
    }
    for (unsigned age = 4; age-- > 0 && status == Status::ok;) status = read(age);
    if (checked_) {
      out_.options.pages->note(waited_ || major_faults() != faults_);
      checked_ = false;
    }
    count_ = 0;
    return status;
  }

 private:
  static constexpr unsigned kGroupItems = W::kWide ? 16 : 32, kGroups = 4;

  // A group is full: those before it go through their next stage.
  Status turn() {
    counts_[now_] = count_;
    Status status = find(2);
    if (status == Status::ok) status = direct(1);
    // A prefetch waits for the translation of its address. Where blocks are far apart, those of a group wait together; where they are
    // near each other, each goes between two that are read, so that memory is always busy.
    if (order_ != Order::near) fetch_blocks(2);
    if (status == Status::ok) status = read(3);
    now_ = (now_ + 1) % kGroups;
    count_ = 0;
    return status;
  }

  unsigned group(unsigned age) const { return (now_ + kGroups - age) % kGroups; }

  // Decides whether the look-ups from this one on ask for their pages ahead.
  void watch(const Item<W>& item) {
    PageWatch* const pages = out_.options.pages;
    if (checked_) pages->note(waited_ || major_faults() != faults_);
    const uint64_t left = expected_ - counted_;
    const auto plan = pages->plan(static_cast<unsigned>(left < kGroupItems ? left : kGroupItems));
    counted_ += kGroupItems;
    state_->fetch = out_.options.fetch || plan == PageWatch::Plan::fetch;
    checked_ = plan == PageWatch::Plan::check;
    if (!checked_) return;
    faults_ = major_faults();
    touch<Blocks>(item);
    waited_ = major_faults() != faults_;
    state_->fetch |= waited_;
  }

  void fetch_directory(const Item<W>& item) {
    const TableView& t = *item.probe->table;
    const uint64_t* slot = t.directory + (item.target >> 1 >> (63 - t.directory_bits));
    __builtin_prefetch(slot);
    if (state_->fetch) ask_ahead(slot, 2 * sizeof *slot, state_);
  }

  // The parts of the key index that the directory tells. Sorted look-ups need none: each is near the one before.
  Status direct(unsigned age) {
    Item<W>* const items = groups_[group(age)];
    for (unsigned i = 0; i < counts_[group(age)] && order_ != Order::dense; ++i) {
      Item<W>* const item = items + i;
      const TableView& t = *item->probe->table;
      if (__builtin_expect(!directory_range(t, item->target, &item->first, &item->end), 0)) return bad_directory(*item, state_);
      __builtin_prefetch(t.keys + item->first);
      __builtin_prefetch(t.keys + item->first + 8);
      __builtin_prefetch(t.keys + item->end);
      __builtin_prefetch(t.keys + item->end);
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
      const Status status = order_ == Order::dense ? find_near(items + i) : find_range<Blocks>(items + i, state_);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    return Status::ok;
  }

  void fetch_blocks(unsigned age) {
    const Item<W>* const items = groups_[group(age)];
    const unsigned n = counts_[group(age)];
    uint64_t known = UINT64_MAX;
    for (unsigned i = 0; i < n; ++i) {
      if (order_ != Order::dense || items[i].first != known) fetch_block(items[i], items[i].first);
      known = items[i].end - 1;
      if (known > items[i].first) fetch_block(items[i], items[i].first + 1);
    }
  }

  // A range without blocks has one before it in the cache already, or has its one behind the last.
  void fetch_block(const Item<W>& item, uint64_t b) {
    const TableView& t = *item.probe->table;
    prefetch_block(t, b);
    if (__builtin_expect(state_->fetch, 0) && b < t.block_count) ask_ahead(block_at(t, b), t.block_bytes, state_);
  }

  // The blocks of a sorted look-up: few keys behind those of the one before, or wherever the directory says.
  Status find_near(Item<W>* item) {
    const TableView& t = *item->probe->table;
    if (at_ < t.block_count && (at_ == 0 || t.keys[at_ - 1] < item->target)) {
      const uint64_t n = t.block_count - at_ < kNearKeys ? t.block_count - at_ : kNearKeys;
      const uint64_t below = Blocks::count_below(t.keys + at_, n, item->target);
      at_ += below;
      if (below < n && encloses(t, at_, item->target)) return set_range<Blocks>(item, at_, state_);
    }
    if (__builtin_expect(!directory_range(t, item->target, &item->first, &item->end), 0)) return bad_directory(*item, state_);
    const Status status = find_range<Blocks>(item, state_);
    at_ = item->first;
    return status;
  }

  Status read(unsigned age) {
    const Item<W>* const items = groups_[group(age)];
    const unsigned n = counts_[group(age)];
    counts_[group(age)] = 0;
    if (n == 0) return Status::ok;
    if (order_ == Order::near) return read_apart(items, n, age == 3 ? groups_[group(2)] : nullptr);
    // Targets that differ behind the sorted bits only, or a damaged index, can be out of order.
    bool ascending = order_ == Order::dense;
    for (unsigned i = 1; i < n && ascending; ++i) ascending = items[i - 1].first <= items[i].first && items[i - 1].end <= items[i].end;
    if (!ascending) return read_apart(items, n, nullptr);
    BlockFeeder<W> feeder{out_, state_};
    const Status status = read_sorted<Blocks>(items, n, &feeder);
    return status == Status::ok ? feeder.template flush<Blocks>() : status;
  }

  // Look-ups whose blocks are apart; between them, the blocks of the next group are fetched.
  Status read_apart(const Item<W>* items, unsigned n, const Item<W>* next) {
    constexpr unsigned kStep = Blocks::kTogether;
    Status status = Status::ok;
    for (unsigned i = 0; i < n && status == Status::ok; i += kStep) {
      for (unsigned j = 0; j < kStep && next; ++j, ++next) {
        fetch_block(*next, next->first);
        if (next->end > next->first + 1) fetch_block(*next, next->first + 1);
      }
      status = read_some(items + i, n - i < kStep ? n - i : kStep);
    }
    return status;
  }

  Status read_some(const Item<W>* items, unsigned n) {
    if constexpr (Blocks::kReached) {
      if (__builtin_expect(should_stop(out_.options.stop, n * kBlockWork), 0)) return interrupted(state_->fault);
      for (uint64_t b = items->first; b < items->end; ++b) {
        const Status status = run_reached<Blocks>(out_, *items, b, state_);
        if (__builtin_expect(status != Status::ok, 0)) return status;
      }
      return Status::ok;
    }
    BlockFeeder<W> feeder{out_, state_};
    const Status status = read_plainly<Blocks>(items, n, &feeder);
    return status == Status::ok ? feeder.template flush<Blocks>() : status;
  }

  const Emitter<W>& out_;
  ProbeState<W>* state_;
  uint64_t expected_, counted_ = 0;  // look-ups, and those that the page watch has counted
  uint64_t faults_ = 0;
  Order order_ = Order::asked;
  bool checked_ = false, waited_ = false;
  uint64_t at_ = 0;  // of sorted look-ups: the block of the last one
  unsigned now_ = 0, count_ = 0;  // the group that is filled, and how many it has
  unsigned counts_[kGroups] = {};
  Item<W> groups_[kGroups][kGroupItems];
};

}  // namespace
}  // namespace fpstore
