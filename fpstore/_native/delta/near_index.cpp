#include "delta/near_index.hpp"

namespace fpstore {

template <class Row>
unsigned NearIndex<Row>::far_blocks(unsigned radius, unsigned bit_count) {
  const unsigned most = std::min(bit_count / kBucketBits, kMaxBlocks);
  for (unsigned blocks = std::min(4u, most);; blocks = std::min(2 * blocks, most)) {
    const unsigned base = (radius + 1) / blocks, extra = (radius + 1) % blocks;  // t + 1
    uint64_t looks = 0, ways = 1;  // of the blocks with base - 1 flips at most, and of those with one more
    for (unsigned f = 0; f < base; ++f, ways = ways * (kBucketBits - f + 1) / f) {
      looks += blocks * ways;
      if (looks > kMostLooks) break;
    }
    if (looks <= kMostLooks) looks += extra * ways;
    if (looks <= kFewLooks || (blocks == most && looks <= kMostLooks)) return blocks;
    if (blocks == most) return 0;
  }
}

template <class Row>
NearIndex<Row>::NearIndex(unsigned radius, const uint8_t* bits, unsigned bit_count)
    : radius_(radius),
      blocks_(radius < kNearBlocks ? radius + 1 : far_blocks(radius, bit_count)),
      words_((blocks_ + 3) / 4),
      first_{},
      lookup_(words_ * sizeof(Row) * 256) {
  if (keeps_all() && blocks_) {
    patterns_.resize(far_patterns());
    for (size_t i = 0; i < patterns_.size(); ++i) {
      patterns_[i] = static_cast<uint16_t>(i);
      for (unsigned t = static_cast<unsigned>(__builtin_popcountll(i)); t <= kBucketBits; ++t) ++pattern_count_[t];
    }
    std::stable_sort(patterns_.begin(), patterns_.end(),
                     [](uint16_t a, uint16_t b) { return __builtin_popcount(a) < __builtin_popcount(b); });
  }
  for (unsigned b = 0; b < blocks_; ++b) {
    unsigned used = 0;
    uint64_t mask[sizeof(Row) / 8] = {};
    for (unsigned i = b; i < bit_count && used < kBucketBits; i += blocks_, ++used) {
      const unsigned place = 63 - bits[i] % 64, word = bits[i] / 64;  // from the least significant bit of its word
      mask[word] |= uint64_t{1} << place;
      for (unsigned value = 0; value < 256; ++value)
        lookup_[(b / 4 * sizeof(Row) + word * 8 + place / 8) * 256 + value] |= uint64_t{value >> (place % 8) & 1}
                                                                                << (16 * (b % 4) + used);
    }
    masks_[b] = *rows<Row>(mask);
    first_[b + 1] = first_[b] + (uint64_t{1} << used);
  }
}

template <class Row>
uint64_t NearIndex<Row>::bytes() const {
  uint64_t sum = buckets_.bytes() + all_.bytes() + lookup_.size() * sizeof(uint64_t) + patterns_.size() * sizeof(uint16_t);
  for (const Class& c : classes_) sum += c.keys.bytes() + c.owners.bytes();
  return sum;
}

template <class Row>
bool NearIndex<Row>::make_buckets() {
  if (!buckets_.reserve(first_[blocks_])) return false;
  buckets_.resize(first_[blocks_]);
  return true;
}

// Room for one more key in each bucket of a fingerprint.
template <class Row>
bool NearIndex<Row>::reserve(const Places& at) {
  if (!buckets_.size() && !make_buckets()) return false;
  if (keeps_all() && !all_.reserve(size_ + 1)) return false;
  uint8_t moving[kMaxBlocks];  // the classes that buckets move to
  unsigned count = 0;
  for (unsigned b = 0; b < blocks_; ++b) {
    const uint32_t size = bucket(b, at).size;
    if (size == kMostKeys) return false;
    if (!is_full(size)) continue;
    const unsigned c = class_of(size + 1);
    moving[count++] = static_cast<uint8_t>(c);
    const uint64_t cells = classes_[c].owners.size() + static_cast<uint64_t>(std::count(moving, moving + count, c));
    if (!classes_[c].owners.reserve(cells) || !classes_[c].keys.reserve(cells * capacity(c))) return false;
  }
  return true;
}

template <class Row>
bool NearIndex<Row>::add(const Row& fingerprint, const Places& at) {
  if (!reserve(at)) return false;
  unsigned left[kMaxBlocks], count = 0;  // the classes that buckets have left
  for (unsigned b = 0; b < blocks_; ++b) {
    const uint32_t number = static_cast<uint32_t>(first_[b]) + at.bucket[b], before = buckets_[number].size;
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

template <class Row>
void NearIndex<Row>::append(uint32_t number, const Row& fingerprint) {
  Bucket& h = buckets_[number];
  if (is_full(h.size)) enlarge(number);
  cell(class_of(h.size + 1), h.cell)[h.size] = fingerprint;
  ++h.size;
}

// Calls ahead(bucket) for the buckets of each fingerprint, and visit(bucket, fingerprint) some time later.
template <class Row>
template <class Ahead, class Visit>
void NearIndex<Row>::each_place(const Row* fingerprints, size_t n, const Pause& pause, const Ahead& ahead,
                           const Visit& visit) const {
  uint32_t buckets[kGroup * kMaxBlocks];
  for (size_t i = 0; i < n; i += kGroup) {
    if (i % kScan == 0) pause(kScan);
    const size_t m = std::min<size_t>(kGroup, n - i);
    size_t count = 0;
    for (size_t j = 0; j < m; ++j) {
      const Places at = places(fingerprints[i + j]);
      for (unsigned b = 0; b < blocks_; ++b) ahead(buckets[count++] = static_cast<uint32_t>(first_[b]) + at.bucket[b]);
    }
    for (size_t k = 0; k < count; ++k) visit(buckets[k], fingerprints[i + k / blocks_]);
  }
}

// A cell of the right capacity for each bucket, whose size is known and whose keys are not there yet.
template <class Row>
bool NearIndex<Row>::give_cells() {
  uint64_t cells[kClasses] = {};
  for (uint64_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].size) ++cells[class_of(buckets_[i].size)];
  for (unsigned c = 0; c < kClasses; ++c) {
    if (!cells[c]) continue;
    if (!classes_[c].owners.reserve(cells[c]) || !classes_[c].keys.reserve(cells[c] * capacity(c))) return false;
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

template <class Row>
void NearIndex<Row>::clear() {
  if (buckets_.size()) memset(buckets_.data(), 0, buckets_.bytes());
  for (Class& of : classes_) {
    of.owners.resize(0);
    of.keys.resize(0);
  }
  all_.resize(0);
  size_ = 0;
}

template <class Row>
bool NearIndex<Row>::fill(const Row* fingerprints, size_t n, const Pause& pause) {
  if (n && n >= first_[1] / kFewPerBucket) return fill_buckets(fingerprints, n, pause);
  for (size_t i = 0; i < n; ++i) {
    if (add(fingerprints[i], places(fingerprints[i]))) continue;
    clear();
    return false;
  }
  return true;
}

// In passes over all of them: each bucket is made as large as it will be.
template <class Row>
bool NearIndex<Row>::fill_buckets(const Row* fingerprints, size_t n, const Pause& pause) {
  if (n > kMostKeys || (!buckets_.size() && !make_buckets()) || (keeps_all() && !all_.reserve(n))) return false;
  try {
    std::vector<Row*> next(buckets_.size());  // where the next key of a bucket goes
    each_place(fingerprints, n, pause, [](uint32_t) {}, [&](uint32_t bucket, const Row&) { ++buckets_[bucket].size; });
    if (!give_cells()) {
      clear();
      return false;
    }
    for (uint64_t i = 0; i < buckets_.size(); ++i)
      if (buckets_[i].size) next[i] = cell(class_of(buckets_[i].size), buckets_[i].cell);
    each_place(
        fingerprints, n, pause, [&](uint32_t bucket) { fetch_line(next[bucket]); },
        [&](uint32_t bucket, const Row& fingerprint) { *next[bucket]++ = fingerprint; });
  } catch (...) {
    clear();
    throw;
  }
  for (size_t i = 0; keeps_all() && i < n; ++i) all_.push(fingerprints[i]);
  size_ = n;
  return true;
}

// Moves the keys of a full bucket to a cell that has room for one more.
template <class Row>
void NearIndex<Row>::enlarge(uint32_t number) {
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

template <class Row>
void NearIndex<Row>::remove_cell(unsigned c, uint32_t i) {
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

template class NearIndex<uint64_t>;
template class NearIndex<Wide<2>>;
template class NearIndex<Wide<4>>;

}  // namespace fpstore
