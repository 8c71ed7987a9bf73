#include "delta/delta.hpp"

#include <algorithm>
#include <memory>

namespace fpstore {

template <class Row>
uint64_t DeltaOf<Row>::bytes() const {
  return index_.bytes() + entries_.bytes() + pairs_.bytes() + history_.bytes() + versions_.bytes() + entry_slots_.bytes() +
         pair_slots_.bytes() + id_slots_.bytes() + next_of_id_.bytes();
}

// --- Look-ups ---------------------------------------------------------------------------------

template <class Row>
uint32_t DeltaOf<Row>::end_of(uint32_t version) const {
  const Version* first = versions_.data();
  const Version* last = first + versions_.size();
  if (first == last || version < first->version) return 0;
  if (version >= last[-1].version) return last[-1].end;
  return std::upper_bound(first, last, version, [](uint32_t v, const Version& x) { return v < x.version; })[-1].end;
}

template <class Row>
Presence DeltaOf<Row>::state(const Row& fingerprint, uint32_t end) const {
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  const Event* e = entry == kNone ? nullptr : newest(entries_[entry].presence, end);
  return !e ? Presence::unknown : e->holds ? Presence::present : Presence::absent;
}

template <class Row>
bool DeltaOf<Row>::is_present(const Row& fingerprint, uint32_t end) const { return state(fingerprint, end) == Presence::present; }

template <class Row>
void DeltaOf<Row>::states(const uint64_t* words, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const {
  const Row* const fingerprints = rows<Row>(words);
  for (size_t i = 0; i < n; i += kGroup) {
    pause(kGroup * kLookUpWork);
    const size_t m = std::min<size_t>(kGroup, n - i);
    for (size_t j = 0; j < m; ++j) entry_slots_.prefetch(mix(fingerprints[i + j]));
    for (size_t j = 0; j < m; ++j) prefetch_entry(mix(fingerprints[i + j]));
    for (size_t j = 0; j < m; ++j) out[i + j] = static_cast<uint8_t>(state(fingerprints[i + j], end));
  }
}

template <class Row>
Presence DeltaOf<Row>::pair_state(const Row& fingerprint, uint64_t id, uint32_t end) const {
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  if (entry == kNone) return Presence::unknown;
  const uint32_t p = find_pair(entry, id);
  return presence_of(p == kNone ? nullptr : &pairs_[p], newest_absence(entries_[entry], end), end);
}

template <class Row>
void DeltaOf<Row>::pair_states(const uint64_t* words, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out,
                         const Pause& pause) const {
  const Row* const fingerprints = rows<Row>(words);
  for (size_t i = 0; i < n; ++i) {
    pause(kLookUpWork);
    if (i + kGroup < n) entry_slots_.prefetch(mix(fingerprints[i + kGroup]));
    out[i] = static_cast<uint8_t>(pair_state(fingerprints[i], ids[i], end));
  }
}

template <class Row>
void DeltaOf<Row>::ids(const uint64_t* words, const uint64_t* base, size_t n, uint32_t end, std::vector<uint64_t>* out) const {
  const Row fingerprint = *rows<Row>(words);
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  if (entry == kNone) {
    out->insert(out->end(), base, base + n);
    return;
  }
  const Event* absence = newest_absence(entries_[entry], end);
  if (absence) n = 0;
  std::vector<uint64_t> added, removed;
  for (uint32_t p = entries_[entry].pairs; p != kNone; p = pairs_[p].next_of_entry) {
    const Presence said = presence_of(&pairs_[p], absence, end);
    if (said == Presence::present) added.push_back(pairs_[p].id);
    else if (said == Presence::absent && n) removed.push_back(pairs_[p].id);
  }
  std::sort(added.begin(), added.end());
  std::sort(removed.begin(), removed.end());
  size_t a = 0, r = 0;
  for (size_t i = 0; i < n; ++i) {
    while (a < added.size() && added[a] < base[i]) out->push_back(added[a++]);
    a += a < added.size() && added[a] == base[i];
    while (r < removed.size() && removed[r] < base[i]) ++r;
    if (r == removed.size() || removed[r] != base[i]) out->push_back(base[i]);
  }
  out->insert(out->end(), added.begin() + static_cast<std::ptrdiff_t>(a), added.end());
}

namespace {

template <class Row>
const uint64_t* words_at(const Row* row) {
  return reinterpret_cast<const uint64_t*>(row);
}

template <class Row>
void append(const Row& row, std::vector<uint64_t>* words) {
  words->insert(words->end(), words_at(&row), words_at(&row) + sizeof(Row) / sizeof(uint64_t));
}

}  // namespace

template <class Row>
IdPairs DeltaOf<Row>::find(const uint64_t* ids, size_t n, uint32_t end, const IdPairs& other, const Pause& pause) const {
  std::vector<std::pair<Row, uint64_t>> found;
  for (size_t i = 0; i < other.ids.size(); ++i) found.emplace_back(rows<Row>(other.fingerprints.data())[i], other.ids[i]);
  for (size_t i = 0; i < n; ++i) {
    pause(kLookUpWork);
    if (i + kGroup < n) id_slots_.prefetch(mix(ids[i + kGroup]));
    uint32_t p = id_slots_.find(mix(ids[i]), [&](uint32_t q) { return pairs_[q].id == ids[i]; });
    for (; p != kNone; p = next_of_id_[p]) {
      const Entry& entry = entries_[pairs_[p].entry];
      if (presence_of(&pairs_[p], newest_absence(entry, end), end) == Presence::present) found.emplace_back(entry.fingerprint, ids[i]);
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && a.second < b.second);
  });
  found.erase(std::unique(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second == b.second;
  }), found.end());
  IdPairs out;
  for (const auto& pair : found) {
    append(pair.first, &out.fingerprints);
    out.ids.push_back(pair.second);
  }
  return out;
}

template <class Row>
void DeltaOf<Row>::export_state(uint32_t end, Export* out, const Pause& pause) const {
  constexpr size_t words = sizeof(Row) / sizeof(uint64_t), each = words + 1;
  std::vector<uint64_t> order;  // fingerprints, each with the number of its entry
  order.reserve(entries_.size() * each);
  for (uint32_t e = 0; e < entries_.size(); ++e) {
    if (!newest(entries_[e].presence, end)) continue;
    append(entries_[e].fingerprint, &order);
    order.push_back(e);
  }
  const size_t n = order.size() / each;
  {
    std::vector<uint64_t> scratch(order.size());
    Stopper never;
    kernels(width_).sort_pairs(order.data(), scratch.data(), n, &never);
  }
  const auto entry_at = [&](size_t i) -> const Entry& { return entries_[static_cast<uint32_t>(order[i * each + words])]; };
  out->fingerprints.reserve(n * words);
  out->in_base.reserve(n);
  out->lims.reserve(n + 1);
  out->lims.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    pause(kLookUpWork);
    if (i + 2 * kGroup < n) fetch_line(&entry_at(i + 2 * kGroup));
    if (i + kGroup < n && entry_at(i + kGroup).pairs != kNone) fetch_line(&pairs_[entry_at(i + kGroup).pairs]);
    const Entry& entry = entry_at(i);
    if (!entry.in_base) {
      const Event* absence = newest_absence(entry, end);
      for (uint32_t p = entry.pairs; p != kNone; p = pairs_[p].next_of_entry)
        if (presence_of(&pairs_[p], absence, end) == Presence::present) out->ids.push_back(pairs_[p].id);
      std::sort(out->ids.begin() + out->lims.back(), out->ids.end());
    }
    append(entry.fingerprint, &out->fingerprints);
    out->in_base.push_back(entry.in_base);
    out->lims.push_back(static_cast<int64_t>(out->ids.size()));
  }
}

// --- Probes -----------------------------------------------------------------------------------

// Adds the matches of one query after the other to the sink, and calls done() after each, which may refuse.
template <class Row>
template <class Done>
bool DeltaOf<Row>::probe_each(const Row* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause,
                              const Done& done) const {
  const Kernels& k = kernels(width_);
  Places places[kGroup];
  for (size_t i = 0; i < n; i += kGroup) {
    const size_t m = std::min<size_t>(kGroup, n - i);
    for (size_t j = 0; j < m; ++j) {
      places[j] = index_.places(queries[i + j]);
      index_.prefetch_buckets(places[j], radius);
    }
    // A single query's buckets are few enough to be waited for together.
    for (size_t j = 0; m > 1 && j < m; ++j) index_.prefetch_keys(places[j], radius);
    for (size_t j = 0; j < m; ++j) {
      const uint64_t before = sink->count;
      if (!index_.probe(k, queries[i + j], radius, places[j], [&](const Row& fingerprint, unsigned distance) {
            entry_slots_.prefetch(mix(fingerprint));
            return push(sink, fingerprint, static_cast<uint32_t>(i + j), distance);
          }))
        return false;
      keep_present(before, end, sink);
      const uint64_t found = sink->count - before;
      if (!done()) return false;
      pause(kBlockWork + index_.size_of(places[j], radius) + found * kLookUpWork);
    }
  }
  return true;
}

template <class Row>
bool DeltaOf<Row>::probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const {
  return probe_each(rows<Row>(queries), n, radius, end, sink, pause, [] { return true; });
}

// Leaves out the matches from a place on that are absent.
template <class Row>
void DeltaOf<Row>::keep_present(uint64_t from, uint32_t end, Sink* sink) const {
  Match<Row>* const found = matches<Row>(*sink);
  for (uint64_t i = from; i < sink->count; ++i) prefetch_entry(mix(found[i].fingerprint));
  uint64_t kept = from;
  for (uint64_t i = from; i < sink->count; ++i)
    if (is_present(found[i].fingerprint, end)) found[kept++] = found[i];
  sink->count = kept;
}

// Calls visit(first, count) for parts of n queries, each small enough that a pause comes before long.
template <class Row>
template <class Visit>
bool DeltaOf<Row>::scan_parts(size_t n, const Pause& pause, const Visit& visit) const {
  const size_t most = std::max<size_t>(kGroup, kInsertWork / (index_.size() + 1));
  for (size_t i = 0; i < n; i += most) {
    const size_t m = std::min(most, n - i);
    if (!visit(i, m)) return false;
    pause(m * index_.size());
  }
  return true;
}

template <class Row>
bool DeltaOf<Row>::scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const {
  return scan_parts(n, pause, [&](size_t first, size_t count) {
    return scan_some(
        rows<Row>(queries), first, count, end, [&](size_t) { return radius; },
        [&](const Match<Row>& match) { return push(sink, match.fingerprint, match.query, match.distance); });
  });
}

template <class Row>
bool DeltaOf<Row>::nearest(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Nearest* kept, const Pause& pause) const {
  if (radius <= index_.radius()) {
    Sink some{};  // the matches of one query
    const std::unique_ptr<Sink, void (*)(Sink*)> held(&some, release);
    return probe_each(rows<Row>(queries), n, radius, end, &some, pause, [&] {
      for (uint64_t i = 0; i < some.count; ++i)
        if (!keep_nearest(kept, matches<Row>(some)[i])) return false;
      some.count = 0;
      return true;
    });
  }
  return scan_parts(n, pause, [&](size_t first, size_t count) {
    return scan_some(
        rows<Row>(queries), first, count, end, [&](size_t i) { return kept->queries[i].bound; },
        [&](const Match<Row>& match) { return keep_nearest(kept, match); });
  });
}

template <class Row>
template <class Bound, class Emit>
bool DeltaOf<Row>::scan_some(const Row* queries, size_t first, size_t n, uint32_t end, const Bound& bound, const Emit& emit) const {
  const Kernels& k = kernels(width_);
  std::vector<uint32_t> hits(NearIndex<Row>::kScan);
  std::vector<uint8_t> known(NearIndex<Row>::kScan);  // 1: looked up and present, 2: and absent
  return index_.scan([&](const Row* keys, size_t count) {
    std::fill(known.begin(), known.end(), 0);
    for (size_t i = first; i < first + n; ++i) {
      const size_t found = k.within_radius(words_at(keys), count, words_at(queries + i), bound(i), hits.data());
      for (size_t j = 0; j < found; ++j) {
        const Row key = keys[hits[j]];
        uint8_t& state = known[hits[j]];
        if (!state) state = is_present(key, end) ? 1 : 2;
        const unsigned distance = ones(key ^ queries[i]);
        if (state == 1 && !emit(Match<Row>{key, static_cast<uint32_t>(i), distance})) return false;
      }
    }
    return true;
  });
}

template class DeltaOf<uint64_t>;
template class DeltaOf<Wide<2>>;
template class DeltaOf<Wide<4>>;

std::unique_ptr<Delta> make_delta(unsigned width, unsigned radius, const uint8_t* bits) {
  switch (words_of(width)) {
    case 1: return std::make_unique<DeltaOf<uint64_t>>(width, radius, bits);
    case 2: return std::make_unique<DeltaOf<Wide<2>>>(width, radius, bits);
    default: return std::make_unique<DeltaOf<Wide<4>>>(width, radius, bits);
  }
}

}  // namespace fpstore
