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
    slots_.assign(size_t{1} << bits, Slot{0, 0});
    shift_ = 64 - bits;
    used_ = zeros_ = 0;
  }

  // True when the hash was not there.
  bool insert(uint64_t hash) {
    if (hash == 0) return zeros_++ == 0;
    Slot& slot = slot_of(hash);
    if (slot.count++) return false;
    slot.hash = hash;
    if (++used_ * 2 > slots_.size()) grow();
    return true;
  }

  // Calls use(hash, count) for each.
  template <class Use>
  void each(Use use) const {
    if (zeros_) use(uint64_t{0}, zeros_);
    for (const Slot& slot : slots_)
      if (slot.count) use(slot.hash, slot.count);
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
    for (const Slot& slot : old)
      if (slot.count) slot_of(slot.hash) = slot;
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
  size_t used_ = 0;
  uint64_t zeros_ = 0;
};

}  // namespace fpstore
