#include "text/simhash.hpp"

#include <new>
#include <vector>

#include "format/xxh64.hpp"

namespace fpstore {

namespace {

// Counts set bits per position over many words with vertical counters: plane i holds bit i of all 64 counts. Words are taken
// sixteen at a time through a tree of carry-save adders (Harley and Seal), so that only one carry in sixteen words ripples.
class BitCounter {
 public:
  void add(uint64_t word) {
    group_[added_++ % kGroup] = word;
    if (added_ % kGroup == 0) ripple(add_tree(group_, 3), 4);
  }

  // The positions whose bit is set in more than half of the words, by a comparison of all 64 counts with half their number at once.
  uint64_t majority() {
    for (unsigned i = 0; i < added_ % kGroup; ++i) ripple(group_[i], 0);
    const uint64_t half = added_ / 2;
    uint64_t above = 0, equal = ~uint64_t{0};
    for (unsigned i = added_ ? 64 - first_bit(added_) : 0; i-- > 0;) {
      const uint64_t bit = uint64_t{0} - ((half >> i) & 1);
      above |= equal & planes_[i] & ~bit;
      equal &= ~(planes_[i] ^ bit);
    }
    return above;
  }

 private:
  static constexpr unsigned kGroup = 16;

  // Adds two words to plane i; what they carry counts for plane i + 1.
  uint64_t add_two(unsigned i, uint64_t a, uint64_t b) {
    const uint64_t u = planes_[i] ^ a;
    const uint64_t carry = (planes_[i] & a) | (u & b);
    planes_[i] = u ^ b;
    return carry;
  }
  // Adds the 2 << i words at w to the planes from 0 to i.
  uint64_t add_tree(const uint64_t* w, unsigned i) {
    if (i == 0) return add_two(0, w[0], w[1]);
    const uint64_t low = add_tree(w, i - 1);
    return add_two(i, low, add_tree(w + (1u << i), i - 1));
  }
  void ripple(uint64_t carry, unsigned i) {
    for (; carry; ++i) {
      const uint64_t next = planes_[i] & carry;
      planes_[i] ^= carry;
      carry = next;
    }
  }

  uint64_t planes_[64] = {};
  uint64_t group_[kGroup];
  uint64_t added_ = 0;
};

// A set of hashes: open addressing with linear probing, at most half full, 0 kept apart.
class HashSet {
 public:
  // Makes the set empty, with room for the given number of hashes, or for a part of a large one: it grows.
  void clear(size_t expected) {
    unsigned bits = kLeastBits;
    while (bits < kMostFirstBits && (size_t{1} << bits) < expected * 2) ++bits;
    slots_.assign(size_t{1} << bits, 0);
    shift_ = 64 - bits;
    used_ = 0;
    has_zero_ = false;
  }

  // True when the hash was not in the set.
  bool insert(uint64_t hash) {
    if (hash == 0) {
      const bool fresh = !has_zero_;
      has_zero_ = true;
      return fresh;
    }
    if (!place(hash)) return false;
    if (++used_ * 2 > slots_.size()) grow();
    return true;
  }

 private:
  static constexpr unsigned kLeastBits = 9;
  static constexpr unsigned kMostFirstBits = 16;

  bool place(uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t i = (hash * salt_) >> shift_;
    for (; slots_[i]; i = (i + 1) & mask)
      if (slots_[i] == hash) return false;
    slots_[i] = hash;
    return true;
  }
  void grow() {
    std::vector<uint64_t> old(slots_.size() * 2, 0);
    old.swap(slots_);
    --shift_;
    for (uint64_t hash : old)
      if (hash) place(hash);
  }

  std::vector<uint64_t> slots_;
  // An address, different in every process: XXH64 is no secret, and a text made to fill one run of slots would cost the square
  // of its length.
  uint64_t salt_ = (reinterpret_cast<uintptr_t>(this) * xxh::kP1) | 1;
  unsigned shift_ = 64;
  size_t used_ = 0;
  bool has_zero_ = false;
};

// Copies size bytes with runs of spaces made one and none at either end; returns how many were kept.
size_t squeeze(const uint8_t* text, size_t size, uint8_t* out) {
  size_t n = 0;
  bool in_text = false;
  for (size_t i = 0; i < size; ++i) {
    const bool is_text = text[i] != ' ';
    out[n] = text[i];
    n += is_text | in_text;
    in_text = is_text;
  }
  return n - (n != 0 && !in_text);
}

// The start of the word behind the one at p. Needs a space behind every word, and reads at most 7 bytes past it.
struct NextWord {
  static constexpr size_t kGap = 1;  // bytes between successive units
  const uint8_t* operator()(const uint8_t* p) const {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    for (;; p += 8) {
      const uint64_t spaces_are_zero = load64(p) ^ (kOnes * ' ');
      const uint64_t found = (spaces_are_zero - kOnes) & ~spaces_are_zero & (kOnes << 7);  // exact in its lowest byte
      if (found) return p + (__builtin_ctzll(found) >> 3) + 1;
    }
  }
};

// The start of the code point behind the one at p. Needs a byte that begins one behind the last.
struct NextChar {
  static constexpr size_t kGap = 0;
  const uint8_t* operator()(const uint8_t* p) const {
    do ++p;
    while ((*p & 0xC0) == 0x80);
    return p;
  }
};

constexpr size_t kPadding = 8;  // what must follow a squeezed text: a space, and bytes that may be read

// Calls use(hash) for every shingle of the squeezed text, which is not empty.
template <class Next, class Use>
void each_shingle(const uint8_t* text, size_t size, unsigned length, uint64_t seed, Next next, Use use) {
  const uint8_t* const end = text + size + Next::kGap;
  const uint8_t* back = text;   // the shingle's first unit
  const uint8_t* front = text;  // the unit behind its last
  for (unsigned i = 0; i < length && front < end; ++i) front = next(front);
  use(xxh64(back, front - back - Next::kGap, seed));
  while (front < end) {
    back = next(back);
    front = next(front);
    use(xxh64(back, front - back - Next::kGap, seed));
  }
}

}  // namespace

bool simhash_texts(const uint8_t* text, const uint64_t* offsets, uint64_t n, const SimhashOptions& options,
                   uint64_t* fingerprints) {
  try {
    std::vector<uint8_t> squeezed;
    HashSet seen;
    for (uint64_t i = 0; i < n; ++i) {
      const size_t raw_size = offsets[i + 1] - offsets[i];
      if (squeezed.size() < raw_size + kPadding) squeezed.resize(raw_size + kPadding);
      const size_t size = squeeze(text + offsets[i], raw_size, squeezed.data());
      memset(squeezed.data() + size, ' ', kPadding);
      BitCounter counter;
      const auto run = [&](auto next) {
        if (size == 0) return;
        if (options.distinct) {
          seen.clear(size);
          each_shingle(squeezed.data(), size, options.length, options.seed, next, [&](uint64_t hash) {
            if (seen.insert(hash)) counter.add(hash);
          });
        } else {
          each_shingle(squeezed.data(), size, options.length, options.seed, next, [&](uint64_t hash) { counter.add(hash); });
        }
      };
      options.words ? run(NextWord{}) : run(NextChar{});
      fingerprints[i] = counter.majority();
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

uint64_t simhash_weighted(const uint64_t* hashes, const double* weights, uint64_t n) {
  double sums[64] = {};
  for (uint64_t i = 0; i < n; ++i)
    for (unsigned b = 0; b < 64; ++b) sums[b] += (hashes[i] >> b) & 1 ? weights[i] : -weights[i];
  uint64_t result = 0;
  for (unsigned b = 0; b < 64; ++b)
    if (sums[b] > 0) result |= uint64_t{1} << b;
  return result;
}

}  // namespace fpstore
