// XXH64 of as many shingles at a time as a vector has words.
#pragma once
#include "format/xxh64.hpp"
#include "text/text_kernels.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// V is a vector of words of an instruction set: its operations, those of all its words, and masks.
template <class V>
class ShingleHashes {
 public:
  static void hash(const Shingles& shingles, size_t n, uint64_t seed, uint64_t* hashes) {
    const ShingleHashes all{shingles, seed};
    const uint64_t *starts = shingles.starts, *ends = starts + shingles.length;
    size_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes)
      V::store(hashes + i, all.hash_lanes(starts + i, ends + i));
    if (i == n) return;
    uint64_t last_starts[V::kLanes] = {}, last_ends[V::kLanes], last[V::kLanes];
    for (uint64_t& end : last_ends) end = shingles.gap;
    memcpy(last_starts, starts + i, (n - i) * sizeof(uint64_t));
    memcpy(last_ends, ends + i, (n - i) * sizeof(uint64_t));
    V::store(last, all.hash_lanes(last_starts, last_ends));
    memcpy(hashes + i, last, (n - i) * sizeof(uint64_t));
  }

 private:
  using Words = typename V::Words;
  using Mask = typename V::Mask;

  ShingleHashes(const Shingles& shingles, uint64_t seed)
      : text_(shingles.text), gap_(shingles.gap), seed_(seed) {}

  // As xxh::lane(), fold() and avalanche().
  static Words lane(Words sum, Words input) {
    const Words x = V::add(sum, V::times(input, xxh::kP2));
    return V::times(V::template rotl<31>(x), xxh::kP1);
  }
  static Words fold(Words h, Words sum) {
    const Words x = V::bit_xor(h, lane(V::all(0), sum));
    return V::add(V::times(x, xxh::kP1), V::all(xxh::kP4));
  }

  static Words avalanche(Words h) {
    h = V::times(V::bit_xor(h, V::template right<33>(h)), xxh::kP2);
    h = V::times(V::bit_xor(h, V::template right<29>(h)), xxh::kP3);
    return V::bit_xor(h, V::template right<32>(h));
  }

  static Words take_eight(Words h, Words word) {
    const Words x = V::template rotl<27>(V::bit_xor(h, lane(V::all(0), word)));
    return V::add(V::times(x, xxh::kP1), V::all(xxh::kP4));
  }
  static Words take_four(Words h, Words word) {
    const Words four = V::times_low(V::bit_and(word, V::all(UINT32_MAX)), xxh::kP1);
    const Words x = V::template rotl<23>(V::bit_xor(h, four));
    return V::add(V::times(x, xxh::kP2), V::all(xxh::kP3));
  }
  static Words take_byte(Words h, Words word) {
    const Words byte = V::times_low(V::bit_and(word, V::all(UINT8_MAX)), xxh::kP5);
    return V::times(V::template rotl<11>(V::bit_xor(h, byte)), xxh::kP1);
  }

  // Takes the stripes of 32 bytes of the shingles that have any, and moves their places behind
  // them.
  Words take_stripes(uint64_t* places, Words sizes, Mask has_stripe) const {
    using namespace xxh;
    Words a = V::all(seed_ + kP1 + kP2), b = V::all(seed_ + kP2), c = V::all(seed_),
          d = V::all(seed_ - kP1), left = sizes, stripe[4];
    for (Mask m = has_stripe; V::any(m); m = V::at_least(left, 32)) {
      V::load_four(text_, places, stripe);
      a = V::choose(m, lane(a, stripe[0]), a);
      b = V::choose(m, lane(b, stripe[1]), b);
      c = V::choose(m, lane(c, stripe[2]), c);
      d = V::choose(m, lane(d, stripe[3]), d);
      const Words step = V::choose(m, V::all(32), V::all(0));
      left = V::sub(left, step);
      V::store(places, V::add(V::load(places), step));
    }
    const Words h = V::add(V::add(V::template rotl<1>(a), V::template rotl<7>(b)),
                           V::add(V::template rotl<12>(c), V::template rotl<18>(d)));
    return V::choose(has_stripe, fold(fold(fold(fold(h, a), b), c), d), V::all(seed_ + kP5));
  }

  // Takes the whole words of shingles that have `rest` more bytes, less than 32; `last` is what is
  // behind. Steps that no shingle takes are left out: in many texts, all have few bytes.
  Words take_words(Words h, const uint64_t* places, Words rest, Words* last) const {
    const Mask has_8 = V::at_least(rest, 8);
    if (!V::any(has_8)) {
      *last = V::load_one(text_, places);
      return h;
    }
    Words words[4];
    V::load_four(text_, places, words);
    h = V::choose(has_8, take_eight(h, words[0]), h);
    *last = V::choose(has_8, words[1], words[0]);
    const Mask has_16 = V::at_least(rest, 16), has_24 = V::at_least(rest, 24);
    if (V::any(has_16)) {
      h = V::choose(has_16, take_eight(h, words[1]), h);
      *last = V::choose(has_16, words[2], *last);
    }
    if (V::any(has_24)) {
      h = V::choose(has_24, take_eight(h, words[2]), h);
      *last = V::choose(has_24, words[3], *last);
    }
    return h;
  }

  // The hashes of as many shingles as a vector has words.
  Words hash_lanes(const uint64_t* starts, const uint64_t* ends) const {
    using namespace xxh;
    const Words sizes = V::sub(V::sub(V::load(ends), V::load(starts)), V::all(gap_)),
                rest = V::bit_and(sizes, V::all(31));
    const Mask has_stripe = V::at_least(sizes, 32);
    Words h = V::all(seed_ + kP5), last;
    if (V::any(has_stripe)) {
      uint64_t places[V::kLanes];
      memcpy(places, starts, sizeof places);
      h = take_stripes(places, sizes, has_stripe);
      h = take_words(V::add(h, sizes), places, rest, &last);
    } else {
      h = take_words(V::add(h, sizes), starts, rest, &last);
    }
    const Mask has_4 = V::at_least(V::bit_and(rest, V::all(4)), 4);
    if (V::any(has_4)) {
      h = V::choose(has_4, take_four(h, last), h);
      last = V::choose(has_4, V::template right<32>(last), last);
    }
    const Words bytes = V::bit_and(rest, V::all(3));
    for (uint64_t i = 1; i < 4; ++i) {
      const Mask has_byte = V::at_least(bytes, i);
      if (!V::any(has_byte)) break;
      h = V::choose(has_byte, take_byte(h, last), h);
      last = V::template right<8>(last);
    }
    return avalanche(h);
  }

  const uint8_t* text_;
  size_t gap_;
  uint64_t seed_;
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
