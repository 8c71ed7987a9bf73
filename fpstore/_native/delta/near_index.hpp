// An index of fingerprints in memory for a Hamming radius: blocks of bits of which one agrees
// (pigeonhole). Knows nothing of Python.
#pragma once
#include <algorithm>
#include <functional>
#include <new>
#include <vector>

#include "delta/column.hpp"
#include "isa/kernels.hpp"

namespace fpstore {

// What a long job calls between two steps, with the work of the last. It may throw.
using Pause = std::function<void(uint64_t)>;

// The bits are dealt to blocks, each with a bucket of fingerprints for every value of its leading
// bits. Two fingerprints within a radius q differ in at most t_i of the leading bits of some block
// i, wherever sum(t_i + 1) = q + 1 (the general pigeonhole principle). Up to radius 7 there are
// radius + 1 blocks, and no t is above 0: those of a smaller q are the first q + 1. For larger
// radii there are four, or as many more as a fingerprint has room for and t needs to stay small;
// buckets whose numbers differ in up to t bits are looked at. Where that is more work than a pass
// over all fingerprints, all are passed over. The buckets of such radii are made when there are
// enough fingerprints that a probe of the index's radius may look at them.
template <class Row>
class NearIndex {
 public:
  static constexpr unsigned kNearBlocks = 8;  // of a radius below it, one more than the radius
  static constexpr unsigned kMaxBlocks = sizeof(Row) > 16 ? 16 : 8;
  static constexpr unsigned kBucketBits = kSmall ? 5 : 16;
  static constexpr unsigned kChunk = 256;  // keys compared at a time
  static constexpr unsigned kGroup = 16;   // fingerprints whose memory is asked for together

  struct Bucket {
    uint32_t cell;  // its place among those of the same capacity
    uint32_t size;
  };
  // The bucket of a fingerprint in each block.
  struct Places {
    uint16_t bucket[kMaxBlocks];
  };

  // bits: the numbers of all bits of a fingerprint.
  NearIndex(unsigned radius, const uint8_t* bits, unsigned bit_count)
      : radius_(radius),
        blocks_(radius < kNearBlocks ? radius + 1 : far_blocks(radius, bit_count)),
        words_((blocks_ + 3) / 4),
        first_{},
        lookup_(words_ * sizeof(Row) * 256) {
    if (keeps_all() && blocks_) {
      patterns_.resize(far_patterns());
      for (size_t i = 0; i < patterns_.size(); ++i) {
        patterns_[i] = static_cast<uint16_t>(i);
        for (unsigned t = static_cast<unsigned>(__builtin_popcountll(i)); t <= kBucketBits; ++t)
          ++pattern_count_[t];
      }
      std::stable_sort(patterns_.begin(), patterns_.end(), [](uint16_t a, uint16_t b) {
        return __builtin_popcount(a) < __builtin_popcount(b);
      });
    }
    if (keeps_all())
      few_ = !blocks_ ? UINT64_MAX : kSmall ? kFewPerBucket : look_count(radius) * kLookWork;
    for (unsigned b = 0; b < blocks_; ++b) {
      unsigned used = 0;
      uint64_t mask[sizeof(Row) / 8] = {};
      for (unsigned i = b; i < bit_count && used < kBucketBits; i += blocks_, ++used) {
        const unsigned place = 63 - bits[i] % 64,
                       word = bits[i] / 64;  // from the least significant bit of its word
        mask[word] |= uint64_t{1} << place;
        for (unsigned value = 0; value < 256; ++value)
          lookup_[(b / 4 * sizeof(Row) + word * 8 + place / 8) * 256 + value] |=
              uint64_t{value >> (place % 8) & 1} << (16 * (b % 4) + used);
      }
      masks_[b] = *rows<Row>(mask);
      first_[b + 1] = first_[b] + (uint64_t{1} << used);
    }
  }

  unsigned radius() const { return radius_; }
  uint64_t size() const { return size_; }
  uint64_t bytes() const {
    uint64_t sum = buckets_.bytes() + all_.bytes() + lookup_.size() * sizeof(uint64_t) +
                   patterns_.size() * sizeof(uint16_t);
    for (const Class& c : classes_) sum += c.keys.bytes() + c.owners.bytes();
    return sum;
  }

  Places places(const Row& fingerprint) const {
    uint64_t words[kMaxBlocks / 4] = {};
    for (unsigned w = 0; w < words_; ++w)
      for (unsigned i = 0; i < sizeof(Row); ++i)
        words[w] |= lookup_[(w * sizeof(Row) + i) * 256 +
                            (word_of(fingerprint, i / 8) >> (8 * (i % 8)) & 0xFF)];
    Places p;
    for (unsigned b = 0; b < kMaxBlocks; ++b)
      p.bucket[b] = static_cast<uint16_t>(words[b / 4] >> (16 * (b % 4)));
    return p;
  }

  // Adds a fingerprint that is not there; false, with nothing changed, when memory runs out.
  bool add(const Row& fingerprint, const Places& at) {
    if (keeps_all() && !all_.reserve(size_ + 1)) return false;
    if (!has_buckets() && wants_buckets(size_ + 1) && !start_buckets()) return false;
    if (has_buckets() && !reserve(at)) return false;
    unsigned left[kMaxBlocks], count = 0;  // the classes that buckets have left
    for (unsigned b = 0; has_buckets() && b < blocks_; ++b) {
      const uint32_t number = static_cast<uint32_t>(first_[b]) + at.bucket[b],
                     before = buckets_[number].size;
      append(number, fingerprint);
      if (before && is_full(before)) left[count++] = class_of(before);
    }
    // Only now: the bucket of another block may have moved into the room of such a class.
    for (unsigned i = 0; i < count; ++i) {
      classes_[left[i]].owners.trim();
      classes_[left[i]].keys.trim();
    }
    if (keeps_all()) all_.push(fingerprint);
    ++size_;
    return true;
  }

  // Adds distinct fingerprints to an empty index; false, with nothing added, when memory runs out.
  bool fill(const Row* fingerprints, size_t n, const Pause& pause) {
    if (wants_buckets(n) && n >= first_[1] / kFewPerBucket) {
      if ((keeps_all() && !all_.reserve(n)) || !fill_buckets(fingerprints, n, pause)) return false;
      for (size_t i = 0; keeps_all() && i < n; ++i) all_.push(fingerprints[i]);
      size_ = n;
      return true;
    }
    for (size_t i = 0; i < n; ++i) {
      if (add(fingerprints[i], places(fingerprints[i]))) continue;
      clear();
      return false;
    }
    return true;
  }

  // The two steps of what a look at a fingerprint's buckets waits for: where they are, and what is
  // in them.
  void prefetch_buckets(const Places& at, unsigned radius) const {
    if (!has_buckets()) return;
    for (unsigned b = 0; b < near_blocks(radius); ++b) fetch_line(&bucket(b, at));
  }
  void prefetch_all(const Places& at) const {
    for (unsigned b = 0; has_buckets() && b < blocks_; ++b) fetch_line(&bucket(b, at));
  }
  void prefetch_keys(const Places& at, unsigned radius) const {
    if (!has_buckets()) return;
    for (unsigned b = 0; b < near_blocks(radius); ++b) {
      const Bucket h = bucket(b, at);
      const char* p = reinterpret_cast<const char*>(keys(h));
      for (uint32_t i = 0; i < h.size && i < kAhead; i += kLineKeys)
        fetch_line(p + i * sizeof(Row));
    }
  }

  // The places where a fingerprint would be appended, or what would be moved before.
  void prefetch_ends(const Places& at) const {
    if (!has_buckets()) return;
    for (unsigned b = 0; b < blocks_; ++b) {
      const Bucket h = bucket(b, at);
      const Row* const k = keys(h);
      for (uint32_t i = is_full(h.size) ? 0 : h.size; i <= h.size && i < kAhead; i += kLineKeys)
        fetch_line(k + i);
    }
  }

  // About how many keys a probe compares, or as many as take as long.
  uint64_t size_of(const Places& at, unsigned radius) const {
    if (!has_buckets()) return size_;
    if (radius >= blocks_) {
      const uint64_t looks = look_count(radius);
      return looks ? std::min(size_, looks * kLookWork + size_ * looks / far_patterns()) : size_;
    }
    uint64_t keys = 0;
    for (unsigned b = 0; b <= radius; ++b) keys += bucket(b, at).size;
    return keys;
  }

  // Calls emit(fingerprint, distance) once for each fingerprint within the radius; emit may refuse.
  // A radius above that of the index is answered by a pass over all.
  template <class Emit>
  bool probe(const Kernels& kernels, const Row& query, unsigned radius, const Places& at,
             const Emit& emit) const {
    if (!size_) return true;
    if (FPSTORE_UNLIKELY(!has_buckets())) return pass(kernels, query, radius, emit);
    if (FPSTORE_UNLIKELY(radius >= blocks_))
      return worth_looking(at, radius) ? probe_far(kernels, query, radius, at, emit)
                                       : pass(kernels, query, radius, emit);
    const auto meets = [this](unsigned block, const Row& difference) {
      return is_zero(difference & masks_[block]);
    };
    for (unsigned b = 0; b <= radius; ++b)
      if (!probe_bucket(kernels, query, radius, b, bucket(b, at), meets, emit)) return false;
    return true;
  }

  // Calls emit(fingerprint, distance) for each fingerprint that has the leading bits of the query
  // which are set in the mask; emit may refuse. Where the buckets of the first block are not
  // numbered by some of these bits alone, it passes over all.
  template <class Emit>
  bool share(const Row& query, uint64_t mask, const Places& at, const Emit& emit) const {
    if (!size_) return true;
    const auto visit = [&](const Row* some, size_t n) {
      for (size_t i = 0; i < n; ++i)
        if (!((leading_word(some[i]) ^ leading_word(query)) & mask) &&
            !emit(some[i], ones(some[i] ^ query)))
          return false;
      return true;
    };
    if (!leads_to_bucket(mask)) return scan(visit);
    const Bucket h = bucket(0, at);
    return visit(keys(h), h.size);
  }
  uint64_t share_size(uint64_t mask, const Places& at) const {
    return !size_ ? 0 : leads_to_bucket(mask) ? bucket(0, at).size : size_;
  }

  // Calls visit(keys, count) with all fingerprints, at most kScan at a time; visit may refuse.
  static constexpr unsigned kScan = 4096;
  template <class Visit>
  bool scan(const Visit& visit) const {
    for (uint64_t i = 0; i < all_.size(); i += kScan)
      if (!visit(all_.data() + i, static_cast<size_t>(std::min<uint64_t>(kScan, all_.size() - i))))
        return false;
    if (!size_ || keeps_all()) return true;
    std::vector<Row> some(kScan);
    size_t held = 0;
    for (uint64_t i = 0; i < first_[1]; ++i) {
      const Bucket h = buckets_[i];
      for (uint32_t done = 0; done < h.size;) {
        const uint32_t n = std::min<uint32_t>(h.size - done, static_cast<uint32_t>(kScan - held));
        memcpy(static_cast<void*>(some.data() + held), keys(h) + done, n * sizeof(Row));
        held += n;
        done += n;
        if (held == kScan) {
          if (!visit(some.data(), held)) return false;
          held = 0;
        }
      }
    }
    return !held || visit(some.data(), held);
  }

 private:
  static constexpr uint64_t kFewLooks = 1 << 11;  // more blocks, and memory, are not worth fewer
  static constexpr uint64_t kMaxLooks =
      1 << 16;  // those of a few million fingerprints are more work than a pass

  // The number of blocks for a radius from kNearBlocks on; 0 where only a pass pays.
  unsigned far_blocks(unsigned radius, unsigned bit_count) {
    const unsigned most = std::min(bit_count / kBucketBits, kMaxBlocks);
    for (unsigned blocks = std::min(4u, most);; blocks = std::min(2 * blocks, most)) {
      const unsigned base = (radius + 1) / blocks, extra = (radius + 1) % blocks;  // t + 1
      uint64_t looks = 0,
               ways = 1;  // of the blocks with base - 1 flips at most, and of those with one more
      for (unsigned f = 0; f < base; ++f, ways = ways * (kBucketBits - f + 1) / f) {
        looks += blocks * ways;
        if (looks > kMaxLooks) break;
      }
      if (looks <= kMaxLooks) looks += extra * ways;
      if (looks <= kFewLooks || (blocks == most && looks <= kMaxLooks)) return blocks;
      if (blocks == most) return 0;
    }
  }

  static constexpr uint64_t kFewPerBucket =
      8;  // buckets: a fill with less than a fingerprint for them adds one by one
  static constexpr uint32_t kAhead = 256 / sizeof(Row);  // keys of a bucket that are prefetched
  static constexpr uint32_t kLineKeys = 64 / sizeof(Row);

  static size_t within_radius(const Kernels& kernels, const Row* keys, size_t n, const Row& query,
                              unsigned radius, uint32_t* places) {
    return kernels.within_radius(reinterpret_cast<const uint64_t*>(keys), n,
                                 reinterpret_cast<const uint64_t*>(&query), radius, places);
  }

  static constexpr uint64_t kLookWork = 128;  // of a look at a bucket, in keys compared in a pass
  static constexpr size_t kFarAhead = 8;      // buckets whose keys are on their way

  // Capacities are 2, 4, 6, 8, 12, 16, 24, ...; of keys of one word, of which a line holds many,
  // from 4 on.
  static constexpr unsigned kLeast =
      sizeof(Row) > 8 ? 0 : 1;  // the number of the first class in this row
  static constexpr unsigned kClasses = 61;
  static constexpr uint32_t kMaxKeys = uint32_t{1} << 31;  // of a bucket
  static unsigned class_of(uint32_t size) {
    if (size <= 4) return kLeast ? 0 : size > 2;
    const unsigned log2 = 31 - static_cast<unsigned>(__builtin_clz(size - 1));  // 2 or more
    return 2 * log2 - 2 - kLeast + ((size - 1) >> (log2 - 1) & 1);
  }

  static uint64_t capacity(unsigned c) {
    const unsigned row_class = c + kLeast;  // its number in the row of capacities from 2 on
    return row_class ? uint64_t{6 - 2 * (row_class & 1)} << (row_class - 1) / 2 : 2;
  }

  static bool is_full(uint32_t size) { return size == 0 || class_of(size + 1) != class_of(size); }

  // Whether leading bits decide which bucket of the first block a fingerprint is in.
  bool leads_to_bucket(uint64_t mask) const {
    if (!has_buckets() || leading_word(masks_[0]) & ~mask) return false;
    for (unsigned i = 1; i < sizeof(Row) / sizeof(uint64_t); ++i)
      if (word_of(masks_[0], i)) return false;
    return true;
  }

  const Bucket& bucket(unsigned block, const Places& at) const {
    return buckets_[first_[block] + at.bucket[block]];
  }
  const Bucket& bucket(unsigned block, const Places& at, uint16_t pattern) const {
    return buckets_[first_[block] + (at.bucket[block] ^ pattern)];
  }

  // The blocks of which a probe looks at one bucket.
  unsigned near_blocks(unsigned radius) const { return radius < blocks_ ? radius + 1 : 0; }
  bool keeps_all() const { return radius_ >= kNearBlocks; }
  bool has_buckets() const { return buckets_.size(); }
  // Whether a probe of the index's radius in so many fingerprints may look at buckets.
  bool wants_buckets(uint64_t size) const { return size > few_; }
  static constexpr uint64_t far_patterns() { return uint64_t{1} << kBucketBits; }

  // The t of a block, for a radius from the number of blocks on.
  unsigned flips(unsigned block, unsigned radius) const {
    const unsigned more = radius + 1 - blocks_;
    return std::min(more / blocks_ + (block >= blocks_ - more % blocks_), kBucketBits);
  }

  // How many buckets a probe of such a radius looks at; 0 if only a pass answers it.
  uint64_t look_count(unsigned radius) const {
    uint64_t looks = 0;
    for (unsigned b = 0; !patterns_.empty() && b < blocks_; ++b)
      looks += pattern_count_[flips(b, radius)];
    return looks;
  }

  // Whether looks at buckets are less work than a pass.
  bool worth_looking(const Places& at, unsigned radius) const {
    const uint64_t looks = look_count(radius);
    if (kSmall) return looks && size_ % 2;  // so few that either way takes its turn
    uint64_t work = looks * kLookWork;
    if (!looks || work >= size_) return false;
    for (unsigned b = 0; b < blocks_; ++b)
      for (uint32_t i = 0; i < pattern_count_[flips(b, radius)]; ++i)
        work += bucket(b, at, patterns_[i]).size;
    return work < size_;
  }

  // Emits the keys of a bucket of block b within the radius, but those that an earlier block has
  // reported: one that they meet in.
  template <class Meets, class Emit>
  bool probe_bucket(const Kernels& kernels, const Row& query, unsigned radius, unsigned b,
                    const Bucket& h, const Meets& meets, const Emit& emit) const {
    uint32_t hits[kChunk];
    const Row* k = keys(h);
    for (uint32_t i = 0; i < h.size; i += kChunk) {
      const size_t found =
          within_radius(kernels, k + i, std::min<size_t>(h.size - i, kChunk), query, radius, hits);
      for (size_t j = 0; j < found; ++j) {
        const Row key = k[i + hits[j]], difference = key ^ query;
        bool before = false;
        for (unsigned a = 0; a < b; ++a) before |= meets(a, difference);
        if (!before && !emit(key, ones(difference))) return false;
      }
    }
    return true;
  }

  template <class Emit>
  bool probe_far(const Kernels& kernels, const Row& query, unsigned radius, const Places& at,
                 const Emit& emit) const {
    const auto meets = [this, radius](unsigned block, const Row& difference) {
      return ones(difference & masks_[block]) <= flips(block, radius);
    };
    for (unsigned b = 0; b < blocks_; ++b) {
      const uint32_t count = pattern_count_[flips(b, radius)];
      for (uint32_t p = 0; p < count; ++p) {
        if (p + kFarAhead < count) fetch_line(keys(bucket(b, at, patterns_[p + kFarAhead])));
        if (!probe_bucket(kernels, query, radius, b, bucket(b, at, patterns_[p]), meets, emit))
          return false;
      }
    }
    return true;
  }

  template <class Emit>
  bool pass(const Kernels& kernels, const Row& query, unsigned radius, const Emit& emit) const {
    uint32_t hits[kChunk];
    return scan([&](const Row* some, size_t n) {
      for (size_t i = 0; i < n; i += kChunk) {
        const size_t found =
            within_radius(kernels, some + i, std::min<size_t>(n - i, kChunk), query, radius, hits);
        for (size_t j = 0; j < found; ++j) {
          const Row key = some[i + hits[j]];
          if (!emit(key, ones(key ^ query))) return false;
        }
      }
      return true;
    });
  }

  Row* cell(unsigned c, uint64_t i) { return classes_[c].keys.data() + i * capacity(c); }
  const Row* keys(const Bucket& h) const {
    const unsigned c = class_of(h.size);
    return classes_[c].keys.data() + h.cell * capacity(c);
  }

  // Room for one more key in each bucket of a fingerprint; there are buckets.
  bool reserve(const Places& at) {
    uint8_t moving[kMaxBlocks];  // the classes that buckets move to
    unsigned count = 0;
    for (unsigned b = 0; b < blocks_; ++b) {
      const uint32_t size = bucket(b, at).size;
      if (size == kMaxKeys) return false;
      if (!is_full(size)) continue;
      const unsigned c = class_of(size + 1);
      moving[count++] = static_cast<uint8_t>(c);
      const uint64_t cells =
          classes_[c].owners.size() + static_cast<uint64_t>(std::count(moving, moving + count, c));
      if (!classes_[c].owners.reserve(cells) || !classes_[c].keys.reserve(cells * capacity(c)))
        return false;
    }
    return true;
  }

  // Buckets for the fingerprints so far.
  bool start_buckets() {
    try {
      return size_ ? fill_buckets(all_.data(), size_, [](uint64_t) {}) : make_buckets();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  bool make_buckets() {
    if (!buckets_.reserve(first_[blocks_])) return false;
    buckets_.resize(first_[blocks_]);
    return true;
  }

  // In passes over all of them: each bucket is made as large as it will be. When memory runs out,
  // there are no buckets.
  bool fill_buckets(const Row* fingerprints, size_t n, const Pause& pause) {
    if (n > kMaxKeys || (!has_buckets() && !make_buckets())) return false;
    try {
      std::vector<Row*> next(buckets_.size());  // where the next key of a bucket goes
      each_place(
          fingerprints, n, pause, [](uint32_t) {},
          [&](uint32_t bucket, const Row&) { ++buckets_[bucket].size; });
      if (!give_cells()) {
        clear_buckets();
        return false;
      }
      for (uint64_t i = 0; i < buckets_.size(); ++i)
        if (buckets_[i].size) next[i] = cell(class_of(buckets_[i].size), buckets_[i].cell);
      each_place(
          fingerprints, n, pause, [&](uint32_t bucket) { fetch_line(next[bucket]); },
          [&](uint32_t bucket, const Row& fingerprint) { *next[bucket]++ = fingerprint; });
    } catch (...) {
      clear_buckets();
      throw;
    }
    return true;
  }

  // A cell of the right capacity for each bucket, whose size is known and whose keys are not there
  // yet.
  bool give_cells() {
    uint64_t cells[kClasses] = {};
    for (uint64_t i = 0; i < buckets_.size(); ++i)
      if (buckets_[i].size) ++cells[class_of(buckets_[i].size)];
    for (unsigned c = 0; c < kClasses; ++c) {
      if (!cells[c]) continue;
      if (!classes_[c].owners.reserve(cells[c]) ||
          !classes_[c].keys.reserve(cells[c] * capacity(c)))
        return false;
      classes_[c].keys.resize(cells[c] * capacity(c));
    }
    for (uint64_t i = 0; i < buckets_.size(); ++i) {
      if (!buckets_[i].size) continue;
      Column<uint32_t>& owners = classes_[class_of(buckets_[i].size)].owners;
      buckets_[i].cell = static_cast<uint32_t>(owners.size());
      owners.push(static_cast<uint32_t>(i));
    }
    return true;
  }

  void clear() {
    clear_buckets();
    all_.resize(0);
    size_ = 0;
  }

  void clear_buckets() {
    if (has_buckets()) memset(buckets_.data(), 0, buckets_.bytes());
    buckets_.resize(0);
    for (Class& of : classes_) {
      of.owners.resize(0);
      of.keys.resize(0);
    }
  }

  // Calls ahead(bucket) for the buckets of each fingerprint, and visit(bucket, fingerprint) some
  // time later.
  template <class Ahead, class Visit>
  void each_place(const Row* fingerprints, size_t n, const Pause& pause, const Ahead& ahead,
                  const Visit& visit) const {
    uint32_t buckets[kGroup * kMaxBlocks];
    for (size_t i = 0; i < n; i += kGroup) {
      if (i % kScan == 0) pause(kScan);
      const size_t m = std::min<size_t>(kGroup, n - i);
      size_t count = 0;
      for (size_t j = 0; j < m; ++j) {
        const Places at = places(fingerprints[i + j]);
        for (unsigned b = 0; b < blocks_; ++b)
          ahead(buckets[count++] = static_cast<uint32_t>(first_[b]) + at.bucket[b]);
      }
      for (size_t k = 0; k < count; ++k) visit(buckets[k], fingerprints[i + k / blocks_]);
    }
  }

  void append(uint32_t number, const Row& fingerprint) {
    Bucket& h = buckets_[number];
    if (is_full(h.size)) enlarge(number);
    cell(class_of(h.size + 1), h.cell)[h.size] = fingerprint;
    ++h.size;
  }

  // Moves the keys of a full bucket to a cell that has room for one more.
  void enlarge(uint32_t number) {
    Bucket& h = buckets_[number];
    const unsigned c = class_of(h.size + 1);
    const uint32_t larger = static_cast<uint32_t>(classes_[c].owners.size());
    classes_[c].owners.push(number);
    classes_[c].keys.resize(classes_[c].keys.size() + capacity(c));
    if (h.size) {
      const unsigned before = class_of(h.size);
      memcpy(static_cast<void*>(cell(c, larger)), cell(before, h.cell), h.size * sizeof(Row));
      remove_cell(before, h.cell);
    }
    h.cell = larger;
  }

  void remove_cell(unsigned c, uint32_t i) {
    Class& of = classes_[c];
    const uint32_t last = static_cast<uint32_t>(of.owners.size()) - 1;
    if (i != last) {
      memcpy(static_cast<void*>(cell(c, i)), cell(c, last), capacity(c) * sizeof(Row));
      of.owners[i] = of.owners[last];
      buckets_[of.owners[i]].cell = i;
    }
    of.owners.pop();
    of.keys.resize(last * capacity(c));
  }

  // The keys of buckets of one capacity, in cells close together: what a bucket leaves when it
  // grows is filled with the last one.
  struct Class {
    Column<Row> keys;
    Column<uint32_t> owners;  // the number of each cell's bucket
  };

  unsigned radius_;
  unsigned blocks_;                 // none where only a pass pays
  unsigned words_;                  // of four bucket numbers each
  Row masks_[kMaxBlocks];           // the bits that number the buckets of a block
  uint64_t first_[kMaxBlocks + 1];  // first bucket of each block
  std::vector<uint64_t> lookup_;  // for each word and byte of a fingerprint, what the byte gives to
                                  // four bucket numbers
  std::vector<uint16_t>
      patterns_;  // for radii that need them: what flips the bits of a bucket's number, by how many
  uint32_t pattern_count_[kBucketBits + 1] = {};  // of those with at most i ones
  Column<Bucket> buckets_;                        // none before the first fingerprint
  Column<Row> all_;                               // the fingerprints, where a pass may be needed
  Class classes_[kClasses];  // the size of a bucket says which: nothing is ever taken out
  uint64_t few_ = 0;         // up to as many fingerprints have no buckets
  uint64_t size_ = 0;
};

}  // namespace fpstore
