// Sums of bits over many words, at each position: what a simhash is the sign of.
#pragma once
#include <cstring>

#include "isa/kernels.hpp"

namespace fpstore {

// Counts set bits per position over many words with vertical counters: plane i holds bit i of all
// 64 counts.
class BitCounter {
 public:
  // At most kMaxCounted words at a time.
  void add(const uint64_t* words, size_t n) {
    count_ += n;
    kernels_.count_bits(words, n, planes_);
  }

  void add(uint64_t word) {
    group_[held_++] = word;
    if (held_ == kGroup) finish();
  }

  // Adds its counts, times 2 to the power of `shift`, to others.
  void add_to(BitCounter* other, unsigned shift) {
    finish();
    for (unsigned i = 0; i < used() && i + shift < kPlanes; ++i)
      other->ripple(planes_[i], i + shift);
    other->count_ += count_ << shift;
  }

  // The positions whose bit is set in more than half of `total`, by a comparison of all 64 counts
  // with that at once.
  uint64_t majority(uint64_t total) {
    finish();
    const uint64_t half = total / 2;
    uint64_t above = 0, equal = ~uint64_t{0};
    for (unsigned i = total ? 64 - first_bit(total) : 0; i-- > 0;) {
      const uint64_t bit = uint64_t{0} - ((half >> i) & 1);
      above |= equal & planes_[i] & ~bit;
      equal &= ~(planes_[i] ^ bit);
    }
    return above;
  }

  void clear() {
    memset(planes_, 0, used() * sizeof planes_[0]);
    held_ = count_ = 0;
  }

 private:
  static constexpr unsigned kGroup = 64, kPlanes = 64;

  unsigned used() const { return count_ ? 64 - first_bit(count_) : 0; }

  void ripple(uint64_t carry, unsigned i) {
    for (; carry && i < kPlanes; ++i) {
      const uint64_t next = planes_[i] & carry;
      planes_[i] ^= carry;
      carry = next;
    }
  }

  void finish() {
    if (held_) add(group_, held_);
    held_ = 0;
  }

  const TextKernels& kernels_ = text_kernels();
  uint64_t planes_[kPlanes] = {};
  uint64_t group_[kGroup];
  size_t held_ = 0;
  uint64_t count_ = 0;  // no plane has a bit that this has not room for
};

// The same with weights, by a counter for each bit of a weight: most weights have few.
class WeightCounter {
 public:
  static constexpr unsigned kWeightBits = 56;

  // A weight has at most kWeightBits; all together have 63.
  void add(uint64_t word, uint64_t weight) {
    used_ |= weight;
    total_ += weight;
    for (; weight; weight &= weight - 1) counters_[__builtin_ctzll(weight)].add(word);
  }

  // The positions whose bit is set in words of more than half of the weight; then nothing is
  // counted.
  uint64_t take_majority() {
    const uint64_t found = used_ == 1 ? counters_[0].majority(total_) : of_all();
    for (; used_; used_ &= used_ - 1) counters_[__builtin_ctzll(used_)].clear();
    total_ = 0;
    return found;
  }

 private:
  uint64_t of_all() {
    BitCounter sum;
    for (uint64_t left = used_; left; left &= left - 1) {
      const unsigned bit = static_cast<unsigned>(__builtin_ctzll(left));
      counters_[bit].add_to(&sum, bit);
    }
    return sum.majority(total_);
  }

  BitCounter counters_[kWeightBits];
  uint64_t used_ = 0;
  uint64_t total_ = 0;
};

}  // namespace fpstore
