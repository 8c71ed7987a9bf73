// How often each of many hashes was met.
#pragma once
#include <vector>

#include "isa/runtime.hpp"

namespace fpstore {

// Open addressing with linear probing, at most half full; the hash 0 is kept apart.
class HashCounts {
 public:
  // Makes it empty, with room for the given number of hashes, or for a part of a large one: it
  // grows.
  void clear(size_t expected) {
    unsigned bits = kMinBits;
    while (bits < kMaxFirstBits && (size_t{1} << bits) < expected * 2) ++bits;
    if (slots_.size() == size_t{1} << bits && used_.size() * 4 < slots_.size())
      for (const size_t i : used_) slots_[i] = Slot{0, 0};
    else
      slots_.assign(size_t{1} << bits, Slot{0, 0});
    shift_ = 64 - bits;
    used_.clear();
    zeros_ = 0;
  }

  // True when the hash was not there.
  bool insert(uint64_t hash) {
    if (hash == 0) return zeros_++ == 0;
    Slot& slot = slot_of(hash);
    if (slot.count++) return false;
    slot.hash = hash;
    used_.push_back(static_cast<size_t>(&slot - slots_.data()));
    if (used_.size() * 2 > slots_.size()) grow();
    return true;
  }

  // Calls use(hash, count) for each.
  template <class Use>
  void each(Use use) const {
    if (zeros_) use(uint64_t{0}, zeros_);
    for (const size_t i : used_) use(slots_[i].hash, slots_[i].count);
  }

 private:
  struct Slot {
    uint64_t hash, count;
  };
  static constexpr unsigned kMinBits = 9, kMaxFirstBits = 16;

  // Where a hash is, or belongs.
  Slot& slot_of(uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t i = (hash * salt_) >> shift_;
    while (slots_[i].count && slots_[i].hash != hash) i = (i + 1) & mask;
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2, Slot{0, 0});
    old.swap(slots_);
    --shift_;
    for (size_t& i : used_) {
      Slot& slot = slot_of(old[i].hash);
      slot = old[i];
      i = static_cast<size_t>(&slot - slots_.data());
    }
  }

  // One salt per process. XXH64 is public: without a salt, a text could be made to fill one run of
  // slots, at the square of its length.
  static uint64_t salt() {
    static const uint64_t salt = random_word() | 1;
    return salt;
  }

  std::vector<Slot> slots_;
  const uint64_t salt_ = salt();
  unsigned shift_ = 64;
  std::vector<size_t> used_;  // slots
  uint64_t zeros_ = 0;
};

}  // namespace fpstore
