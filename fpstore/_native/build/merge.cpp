#include "build/merge.hpp"

#include <algorithm>

namespace fpstore {

namespace {

// The wanted ids as a hashed bitmap: most others are told apart by one bit of it.
class IdFilter {
 public:
  IdFilter(const uint64_t* wanted, size_t n) : wanted_(wanted), end_(wanted + n) {
    while (bits_ < kMaxBits && n >> (bits_ - kSparse)) ++bits_;
    map_.resize(size_t{1} << (bits_ - 6));
    for (size_t i = 0; i < n; ++i)
      map_[hash(wanted[i]) >> 6] |= uint64_t{1} << (hash(wanted[i]) & 63);
  }
  // Whether one lies in [low, high].
  bool any_within(uint64_t low, uint64_t high) const {
    const uint64_t* first = std::lower_bound(wanted_, end_, low);
    return first != end_ && *first <= high;
  }
  bool has(uint64_t id) const {
    const uint64_t h = hash(id);
    return (map_[h >> 6] >> (h & 63) & 1) && std::binary_search(wanted_, end_, id);
  }

 private:
  static constexpr unsigned kSparse = 4;    // 16 bits or more for each id
  static constexpr unsigned kMaxBits = 26;  // 8 MiB
  uint64_t hash(uint64_t id) const { return id * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits_); }
  const uint64_t* wanted_;
  const uint64_t* end_;
  unsigned bits_ = 12;
  std::vector<uint64_t> map_;
};

// The first key in [p, end) that is not below key; quick when it is near p.
template <class Row>
const Row* gallop(const Row* p, const Row* end, const Row& key) {
  size_t step = 1;
  while (static_cast<size_t>(end - p) > step && p[step - 1] < key) {
    p += step;
    step *= 2;
  }
  return std::lower_bound(p, p + std::min(step, static_cast<size_t>(end - p)), key);
}

template <class T>
void copy(const T* from, size_t n, T* to) {
  if (n < 8) {
    for (size_t i = 0; i < n; ++i) to[i] = from[i];
  } else {
    memcpy(to, from, n * sizeof *from);
  }
}

// Goes through groups from the first to the last and copies them or passes over them.
template <class Row>
class GroupCursor {
 public:
  explicit GroupCursor(const Groups& groups)
      : key_(rows<Row>(groups.set.keys)),
        end_(key_ + groups.set.n),
        count_(groups.counts),
        id_(groups.ids) {}
  bool done() const { return key_ == end_; }
  const Row& key() const { return *key_; }
  uint64_t count() const { return *count_; }
  const uint64_t* ids() const { return id_; }
  bool at(const Row& key) const { return !done() && *key_ == key; }
  void skip() {
    id_ += *count_++;
    ++key_;
  }
  void copy_below(const Row& key, GroupsOut* out) { copy_until(gallop(key_, end_, key), out); }
  void copy_one(GroupsOut* out) { copy_until(key_ + 1, out); }
  void copy_rest(GroupsOut* out) { copy_until(end_, out); }

 private:
  void copy_until(const Row* stop, GroupsOut* out) {
    const size_t n = static_cast<size_t>(stop - key_);
    size_t ids = 0;
    for (size_t i = 0; i < n; ++i) ids += count_[i];
    copy(key_, n, rows<Row>(out->keys) + out->n);
    copy(count_, n, out->counts + out->n);
    copy(id_, ids, out->ids + out->id_count);
    out->n += n;
    out->id_count += ids;
    key_ = stop;
    count_ += n;
    id_ += ids;
  }

  const Row* key_;
  const Row* end_;
  const uint64_t* count_;
  const uint64_t* id_;
};

template <class Row>
bool ascend(const uint64_t* words, size_t n) {
  const Row* const keys = rows<Row>(words);
  bool bad = false;
  for (size_t i = 1; i < n; ++i) bad |= keys[i] <= keys[i - 1];
  return !bad;
}

template <class Row>
size_t merge_rows(const Keys& keys, const Keys& drop, const Keys& add, uint64_t* out) {
  const Row *k = rows<Row>(keys.keys), *d = rows<Row>(drop.keys), *a = rows<Row>(add.keys);
  const Row *k_end = k + keys.n, *d_end = d + drop.n, *a_end = a + add.n;
  Row* const start = rows<Row>(out);
  Row* o = start;
  while (d != d_end || a != a_end) {
    const Row change = d == d_end ? *a : a == a_end ? *d : std::min(*a, *d);
    const Row* stop = gallop(k, k_end, change);
    copy(k, static_cast<size_t>(stop - k), o);
    o += stop - k;
    k = stop;
    const bool dropped = d != d_end && *d == change, added = a != a_end && *a == change;
    if (added) *o++ = change;
    if (k != k_end && *k == change) ++k;  // dropped, or written just now
    d += dropped;
    a += added;
  }
  copy(k, static_cast<size_t>(k_end - k), o);
  return static_cast<size_t>(o + (k_end - k) - start);
}

template <class Row>
bool merge_group_rows(const Groups& groups, const Keys& drop, const Groups& add, GroupsOut* out) {
  GroupCursor<Row> g(groups), a(add);
  const Row *d = rows<Row>(drop.keys), *d_end = d + drop.n;
  while (d != d_end || !a.done()) {
    const Row change = d == d_end ? a.key() : a.done() ? *d : std::min(a.key(), *d);
    g.copy_below(change, out);
    const bool dropped = d != d_end && *d == change;
    d += dropped;
    if (g.at(change)) {
      if (!dropped) return false;
      g.skip();
    }
    if (a.at(change)) a.copy_one(out);
  }
  g.copy_rest(out);
  return true;
}

template <class Row>
bool union_group_rows(const Groups& first, const Groups& second, GroupsOut* out) {
  GroupCursor<Row> a(first), b(second);
  while (!a.done() && !b.done()) {
    if (a.key() < b.key()) {
      a.copy_below(b.key(), out);
    } else if (b.key() < a.key()) {
      b.copy_below(a.key(), out);
    } else {
      if (!ascend<uint64_t>(a.ids(), a.count()) || !ascend<uint64_t>(b.ids(), b.count()))
        return false;
      uint64_t* const start = out->ids + out->id_count;
      const uint64_t* const end =
          std::set_union(a.ids(), a.ids() + a.count(), b.ids(), b.ids() + b.count(), start);
      rows<Row>(out->keys)[out->n] = a.key();
      out->counts[out->n++] = static_cast<uint64_t>(end - start);
      out->id_count += static_cast<size_t>(end - start);
      a.skip();
      b.skip();
    }
  }
  a.copy_rest(out);
  b.copy_rest(out);
  return true;
}

}  // namespace

Status open_records(const std::vector<RecordBytes>& records, uint64_t first_block,
                    const uint64_t* keys, uint64_t seed, std::vector<IdRecord>* opened,
                    Fault* fault) {
  opened->resize(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    if (open_record(records[i].data, records[i].size, seed + keys[i], &(*opened)[i], fault) ==
        Status::ok)
      continue;
    fault->block = first_block + i;
    return fault->status;
  }
  return Status::ok;
}

std::vector<Place> find_ids(const std::vector<IdRecord>& records, uint64_t first_block,
                            const uint64_t* wanted, size_t n) {
  std::vector<Place> found;
  const IdFilter filter(wanted, n);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < records.size(); ++i) {
    const IdRecord& r = records[i];
    const uint64_t span = r.id_bits ? ~uint64_t{0} >> (64 - r.id_bits) : 0;
    // Only a forged record has ids that run over the end of the numbers, but its ids are found all
    // the same.
    const bool wraps = span > UINT64_MAX - r.base;
    if (!(wraps ? n > 0 : filter.any_within(r.base, r.base + span))) continue;
    if (ids.size() < r.total) ids.resize(r.total);
    unpack_ids(r, ids.data());
    uint32_t rank = 0;
    uint64_t end = count_at(r, 0);
    for (uint64_t place = 0; place < r.total; ++place) {
      if (!filter.has(ids[place])) continue;
      while (place >= end) end += count_at(r, ++rank);
      found.push_back(Place{first_block + i, ids[place], rank});
    }
  }
  return found;
}

bool strictly_ascending(const Keys& keys) {
  return with_row(keys.words, [&](auto row) { return ascend<decltype(row)>(keys.keys, keys.n); });
}

const char* fault_of(const Groups& groups) {
  if (!strictly_ascending(groups.set)) return "keys must ascend";
  unsigned __int128 total = 0;
  for (size_t i = 0; i < groups.set.n; ++i) total += groups.counts[i];
  return total == groups.id_count ? nullptr : "counts and ids disagree";
}

size_t merge_keys(const Keys& keys, const Keys& drop, const Keys& add, uint64_t* out) {
  return with_row(keys.words,
                  [&](auto row) { return merge_rows<decltype(row)>(keys, drop, add, out); });
}

bool merge_groups(const Groups& groups, const Keys& drop, const Groups& add, GroupsOut* out) {
  return with_row(groups.set.words, [&](auto row) {
    return merge_group_rows<decltype(row)>(groups, drop, add, out);
  });
}

bool union_groups(const Groups& a, const Groups& b, GroupsOut* out) {
  return with_row(a.set.words,
                  [&](auto row) { return union_group_rows<decltype(row)>(a, b, out); });
}

}  // namespace fpstore
