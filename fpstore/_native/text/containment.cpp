#include "text/containment.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

namespace fpstore {

namespace {

constexpr size_t kFewSets = 6;  // that stay: a set is compared with each of so few

struct Set {
  const uint32_t* features;
  uint64_t size;
};

// Sets that stay, by their features.
class KeptIndex {
 public:
  struct Lookup {
    uint32_t count;  // of the sets
    uint32_t first;  // their posting
  };

  void clear() {
    slots_.clear();
    postings_.clear();
    used_ = 0;
    limit_ = uint64_t{1} << 32;
  }

  void add(uint32_t number, const Set& set) {
    for (uint64_t i = 0; i < set.size && set.features[i] < limit_; ++i) {
      if (2 * used_ >= slots_.size()) grow();
      Slot& slot = slots_[place_of(set.features[i])];
      if (!slot.count) {
        slot.feature = set.features[i];
        ++used_;
      }
      postings_.push_back({number, slot.first});
      slot.first = static_cast<uint32_t>(postings_.size() - 1);
      ++slot.count;
    }
    while (postings_.size() > kMaxIndexed) halve();
  }

  Lookup find(uint32_t feature) const {
    if (slots_.empty()) return {0, 0};
    const Slot& slot = slots_[place_of(feature)];
    return {slot.count, slot.first};
  }
  void fetch(uint32_t feature) const {
    if (!slots_.empty()) fetch_line(&slots_[mixed(feature) >> shift_]);
  }

  template <class Use>
  void each(const Lookup& lookup, Use use) const {
    uint32_t at = lookup.first;
    for (uint32_t i = 0; i < lookup.count; ++i) {
      use(postings_[at].number);
      at = postings_[at].next;
    }
  }

  // Features from here on are not indexed.
  uint64_t limit() const { return limit_; }

 private:
  struct Slot {
    uint32_t feature = 0, count = 0, first = 0;
  };
  struct Posting {
    uint32_t number, next;
  };

  static uint32_t mixed(uint32_t feature) { return feature * 0x9E3779B1u; }
  size_t place_of(uint32_t feature) const {
    size_t at = mixed(feature) >> shift_;
    while (slots_[at].count && slots_[at].feature != feature) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(std::max<size_t>(2 * old.size(), kFirstSlots), Slot{});
    shift_ = 32 - static_cast<unsigned>(__builtin_ctzll(slots_.size()));
    for (const Slot& slot : old)
      if (slot.count) slots_[place_of(slot.feature)] = slot;
  }
  // Leaves the greater half of the hashes out.
  void halve() {
    limit_ /= 2;
    std::vector<Slot> old = std::move(slots_);
    const std::vector<Posting> postings = std::move(postings_);
    postings_.clear();
    slots_.assign(old.size(), Slot{});
    used_ = 0;
    std::vector<uint32_t> numbers;
    for (const Slot& slot : old) {
      if (!slot.count || slot.feature >= limit_) continue;
      numbers.clear();
      uint32_t at = slot.first;
      for (uint32_t i = 0; i < slot.count; ++i, at = postings[at].next)
        numbers.push_back(postings[at].number);
      Slot& moved = slots_[place_of(slot.feature)];
      moved = {slot.feature, slot.count, 0};
      ++used_;
      for (size_t i = numbers.size(); i-- > 0;) {
        postings_.push_back({numbers[i], moved.first});
        moved.first = static_cast<uint32_t>(postings_.size() - 1);
      }
    }
  }

  static constexpr size_t kFirstSlots = 1 << 12;

  std::vector<Slot> slots_;  // at most half full
  std::vector<Posting> postings_;
  size_t used_ = 0;
  unsigned shift_ = 32;
  uint64_t limit_ = uint64_t{1} << 32;
};

class Decision {
 public:
  Decision(const ContainmentGroups& groups, const ContainmentRule& rule)
      : groups_(groups), rule_(rule) {}

  // Decides a group; false if it was stopped.
  bool decide(uint64_t group, uint64_t* kept, Stopper* stop) {
    kept_.clear();
    by_digest_.clear();
    indexed_ = 0;
    least_kept_ = UINT64_MAX;
    const uint64_t begin = groups_.lims[group], end = groups_.lims[group + 1];
    const bool is_large = end - begin > kFewSets;
    for (uint64_t row = begin; row < end; ++row) {
      const Set set = set_of(row);
      work_ = 1;
      uint64_t place = row;
      if (!groups_.stays || !groups_.stays[row]) {
        place = is_large ? find_equal(row, set) : UINT64_MAX;
        if (place == UINT64_MAX) place = find_kept(row, set);
      }
      kept[row] = place;
      if (place == row) {
        kept_.push_back(row);
        least_kept_ = std::min(least_kept_, set.size);
        if (is_large) by_digest_.emplace(groups_.digests[row], row);
      }
      if (should_stop(stop, work_)) return false;
    }
    return true;
  }

 private:
  Set set_of(uint64_t row) const {
    const uint64_t number = groups_.numbers[row];
    return {groups_.sets.features + groups_.sets.lims[number], groups_.sets.size(number)};
  }
  uint64_t shared(uint64_t a, uint64_t b) {
    work_ += groups_.sets.size(groups_.numbers[a]) + groups_.sets.size(groups_.numbers[b]);
    return count_shared(groups_.sets, groups_.numbers[a], groups_.numbers[b]);
  }

  // A row before that stays and is equal; no row if there is none.
  uint64_t find_equal(uint64_t row, const Set& set) const {
    const auto equal = by_digest_.find(groups_.digests[row]);
    if (equal == by_digest_.end()) return UINT64_MAX;
    const Set other = set_of(equal->second);
    const bool same = set.size && set.size == other.size &&
                      !memcmp(set.features, other.features, sizeof(uint32_t) * set.size);
    return same ? equal->second : UINT64_MAX;
  }

  uint64_t find_kept(uint64_t row, const Set& set) {
    if (kept_.size() <= kFewSets) return best_of(row, set, kept_);
    for (; indexed_ < kept_.size(); ++indexed_) {
      if (!indexed_) index_.clear();
      index_.add(static_cast<uint32_t>(indexed_), set_of(kept_[indexed_]));
    }
    return find_indexed(row, set);
  }

  // The row among some that stay, ascending, for which a row goes, or the row itself.
  uint64_t best_of(uint64_t row, const Set& set, const std::vector<uint64_t>& others) {
    uint64_t best = row, most = 0;
    for (const uint64_t other : others) {
      const uint64_t common = shared(row, other), size = set_of(other).size;
      if (common && common == set.size && common == size) return other;
      if (common > most && rule_.goes(set.size, size, common)) {
        best = other;
        most = common;
      }
    }
    return best;
  }

  // The least number of features that a set shares with one for which it goes.
  uint64_t least_shared(uint64_t size) const {
    const double n = static_cast<double>(size),
                 kept = std::max(static_cast<double>(least_kept_), rule_.similar * n);
    const double least =
        std::min(rule_.contained * n, rule_.similar * (n + kept) / (1 + rule_.similar));
    return std::max<uint64_t>(1, static_cast<uint64_t>(std::max(0.0, std::ceil(least - 1e-6))));
  }

  uint64_t find_indexed(uint64_t row, const Set& set) {
    lookups_.clear();
    uint64_t present = 0, postings = 0, left_out = 0;
    constexpr uint64_t kAhead = 16;
    for (uint64_t i = 0; i < set.size; ++i) {
      if (set.features[i] >= index_.limit()) {
        left_out = set.size - i;
        break;
      }
      if (i + kAhead < set.size) index_.fetch(set.features[i + kAhead]);
      const KeptIndex::Lookup lookup = index_.find(set.features[i]);
      if (!lookup.count) continue;
      ++present;
      postings += lookup.count;
      lookups_.push_back(lookup);
    }
    work_ += set.size;
    const uint64_t least = least_shared(set.size);
    if (present + left_out < least) return row;
    if (!left_out && postings <= kMaxPostings) return most_shared(row, set, postings);
    // A set that shares `least` features has at least one of any `size - least + 1` of them. The
    // rarest ones are looked up: few sets have them. (Prefix filtering: Chaudhuri, Ganti, Kaushik,
    // ICDE 2006.)
    const uint64_t absent = set.size - left_out - present,
                   prefix = set.size - least + 1 > absent ? set.size - least + 1 - absent : 0;
    std::sort(lookups_.begin(), lookups_.end(),
              [](const auto& a, const auto& b) { return a.count < b.count; });
    if (!left_out && prefix < lookups_.size()) lookups_.resize(prefix);
    uint64_t read = 0;
    size_t last = 0;
    while (last < lookups_.size() && (!last || read + lookups_[last].count <= kMaxPostings))
      read += lookups_[last++].count;
    lookups_.resize(last);
    count_hits(read);
    const auto better = [&](uint32_t a, uint32_t b) {
      return hits_[a] != hits_[b] ? hits_[a] > hits_[b] : a < b;
    };
    const size_t compared = std::min(touched_.size(), kMaxComparedSets);
    std::partial_sort(touched_.begin(), touched_.begin() + static_cast<ptrdiff_t>(compared),
                      touched_.end(), better);
    candidates_.clear();
    for (size_t i = 0; i < compared; ++i) candidates_.push_back(kept_[touched_[i]]);
    forget_hits();
    std::sort(candidates_.begin(), candidates_.end());
    return best_of(row, set, candidates_);
  }

  // The same by all postings, which are few: then hits are what two sets share.
  uint64_t most_shared(uint64_t row, const Set& set, uint64_t postings) {
    count_hits(postings);
    uint64_t best = row, most = 0, first = UINT64_MAX;
    for (const uint32_t number : touched_) {
      const uint64_t common = hits_[number];
      if (common < most || (common == most && number > first) ||
          !rule_.goes(set.size, set_of(kept_[number]).size, common))
        continue;
      best = kept_[number];
      most = common;
      first = number;
    }
    forget_hits();
    return best;
  }

  void count_hits(uint64_t postings) {
    hits_.resize(std::max(hits_.size(), kept_.size()));
    for (const KeptIndex::Lookup& lookup : lookups_)
      index_.each(lookup, [&](uint32_t number) {
        if (!hits_[number]++) touched_.push_back(number);
      });
    work_ += postings;
  }
  void forget_hits() {
    for (const uint32_t number : touched_) hits_[number] = 0;
    touched_.clear();
  }

  const ContainmentGroups& groups_;
  const ContainmentRule& rule_;
  KeptIndex index_;
  std::vector<uint64_t> kept_, candidates_;  // rows
  std::unordered_map<uint64_t, uint64_t> by_digest_;
  std::vector<KeptIndex::Lookup> lookups_;
  std::vector<uint32_t> hits_, touched_;
  size_t indexed_ = 0;
  uint64_t least_kept_ = 0, work_ = 0;
};

}  // namespace

bool decide_groups(const ContainmentGroups& groups, const ContainmentRule& rule, uint64_t* kept,
                   Stopper* stop) {
  try {
    Decision decision(groups, rule);
    for (uint64_t group = 0; group < groups.count; ++group)
      if (!decision.decide(group, kept, stop)) break;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

namespace {

// Adds the features that sets share until one of them ends; both move on.
uint64_t merge_shared(const uint32_t** left, const uint32_t* left_end, const uint32_t** right,
                      const uint32_t* right_end) {
  const uint32_t *a = *left, *b = *right;
  uint64_t common = 0;
  while (a < left_end && b < right_end) {
    const uint32_t l = *a, r = *b;
    common += l == r;
    a += l <= r;
    b += r <= l;
  }
  *left = a;
  *right = b;
  return common;
}

}  // namespace

uint64_t count_shared(const SetsOfFeatures& sets, uint64_t a, uint64_t b) {
  const uint32_t *left = sets.features + sets.lims[a], *right = sets.features + sets.lims[b];
  return merge_shared(&left, left + sets.size(a), &right, right + sets.size(b));
}

bool contains_share(const SetsOfFeatures& sets, uint64_t a, uint64_t b, double share) {
  constexpr ptrdiff_t kLook = 64;  // features between two looks whether it can still be
  const uint32_t *left = sets.features + sets.lims[a], *right = sets.features + sets.lims[b];
  const uint32_t *const begin = left, *const left_end = left + sets.size(a),
                        *const right_end = right + sets.size(b);
  const double n = static_cast<double>(sets.size(a));
  uint64_t common = 0;
  while (left < left_end && right < right_end) {
    const uint32_t* const stop = left_end - left > kLook ? left + kLook : left_end;
    common += merge_shared(&left, stop, &right, right_end);
    const auto missed = static_cast<double>(static_cast<uint64_t>(left - begin) - common);
    if (n - missed < share * n) return false;
  }
  return static_cast<double>(common) >= share * n;
}

}  // namespace fpstore
