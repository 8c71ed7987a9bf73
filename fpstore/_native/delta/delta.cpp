#include "delta/delta.hpp"

#include <sys/random.h>

#include <algorithm>

namespace fpstore {

uint64_t Delta::random_seed() const {
  uint64_t seed = 0;
  // Where the system has no randomness yet, the address is what nobody outside knows.
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = 0;
  return seed ^ reinterpret_cast<uintptr_t>(this);
}

uint64_t Delta::mix(uint64_t x) const {
  x = (x ^ seed_) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EB;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

uint64_t Delta::bytes() const {
  return index_.bytes() + entries_.bytes() + pairs_.bytes() + history_.bytes() + versions_.bytes() + entry_slots_.bytes() +
         pair_slots_.bytes() + id_slots_.bytes() + next_of_id_.bytes();
}

// --- Look-ups ---------------------------------------------------------------------------------

uint32_t Delta::end_of(uint32_t version) const {
  const Version* first = versions_.data();
  const Version* last = first + versions_.size();
  if (first == last || version < first->version) return 0;
  if (version >= last[-1].version) return last[-1].end;
  return std::upper_bound(first, last, version, [](uint32_t v, const Version& x) { return v < x.version; })[-1].end;
}

uint32_t Delta::find_entry(uint64_t hash, uint64_t fingerprint) const {
  return entry_slots_.find(hash, [&](uint32_t e) { return entries_[e].fingerprint == fingerprint; });
}

// The second step after entry_slots_.prefetch().
void Delta::prefetch_entry(uint64_t hash) const {
  const uint32_t entry = entry_slots_.peek(hash);
  if (entry != kNone) fetch_line(&entries_[entry]);
}

uint32_t Delta::find_pair(uint32_t entry, uint64_t id) const {
  if (entries_[entry].pair_count > kWalk)
    return pair_slots_.find(pair_hash(entry, id), [&](uint32_t p) { return pairs_[p].entry == entry && pairs_[p].id == id; });
  uint32_t p = entries_[entry].pairs;
  while (p != kNone && pairs_[p].id != id) p = pairs_[p].next_of_entry;
  return p;
}

// The newest event before end, if any.
const Delta::Event* Delta::newest(const Event& event, uint32_t end) const {
  const Event* e = &event;
  while (e->serial >= end) {
    if (!e->older) return nullptr;
    e = &history_[e->older - 1];
  }
  return e;
}

// Few steps: presence and absence take turns.
const Delta::Event* Delta::newest_absence(const Entry& entry, uint32_t end) const {
  const Event* e = newest(entry.presence, end);
  while (e && e->holds) e = e->older ? &history_[e->older - 1] : nullptr;
  return e;
}

Said Delta::state(uint64_t fingerprint, uint32_t end) const {
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  const Event* e = entry == kNone ? nullptr : newest(entries_[entry].presence, end);
  return !e ? Said::nothing : e->holds ? Said::present : Said::absent;
}

bool Delta::is_present(uint64_t fingerprint, uint32_t end) const { return state(fingerprint, end) == Said::present; }

Said Delta::said_of(const Pair* pair, const Event* absence, uint32_t end) const {
  const Event* e = pair ? newest(pair->presence, end) : nullptr;
  if (e && (!absence || e->serial > absence->serial)) return e->holds ? Said::present : Said::absent;
  return absence ? Said::absent : Said::nothing;
}

void Delta::states(const uint64_t* fingerprints, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const {
  for (size_t i = 0; i < n; i += kGroup) {
    pause(kGroup * kLookUpWork);
    const size_t m = std::min<size_t>(kGroup, n - i);
    for (size_t j = 0; j < m; ++j) entry_slots_.prefetch(mix(fingerprints[i + j]));
    for (size_t j = 0; j < m; ++j) prefetch_entry(mix(fingerprints[i + j]));
    for (size_t j = 0; j < m; ++j) out[i + j] = static_cast<uint8_t>(state(fingerprints[i + j], end));
  }
}

Said Delta::pair_state(uint64_t fingerprint, uint64_t id, uint32_t end) const {
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  if (entry == kNone) return Said::nothing;
  const uint32_t p = find_pair(entry, id);
  return said_of(p == kNone ? nullptr : &pairs_[p], newest_absence(entries_[entry], end), end);
}

void Delta::pairs(const uint64_t* fingerprints, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const {
  for (size_t i = 0; i < n; ++i) {
    pause(kLookUpWork);
    if (i + kGroup < n) entry_slots_.prefetch(mix(fingerprints[i + kGroup]));
    out[i] = static_cast<uint8_t>(pair_state(fingerprints[i], ids[i], end));
  }
}

void Delta::ids(uint64_t fingerprint, const uint64_t* base, size_t n, uint32_t end, std::vector<uint64_t>* out) const {
  const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
  if (entry == kNone) {
    out->insert(out->end(), base, base + n);
    return;
  }
  const Event* absence = newest_absence(entries_[entry], end);
  if (absence) n = 0;
  std::vector<uint64_t> added, removed;
  for (uint32_t p = entries_[entry].pairs; p != kNone; p = pairs_[p].next_of_entry) {
    const Said said = said_of(&pairs_[p], absence, end);
    if (said == Said::present) added.push_back(pairs_[p].id);
    else if (said == Said::absent && n) removed.push_back(pairs_[p].id);
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

void Delta::find(const uint64_t* ids, size_t n, uint32_t end, std::vector<std::pair<uint64_t, uint64_t>>* out,
                 const Pause& pause) const {
  for (size_t i = 0; i < n; ++i) {
    pause(kLookUpWork);
    if (i + kGroup < n) id_slots_.prefetch(mix(ids[i + kGroup]));
    uint32_t p = id_slots_.find(mix(ids[i]), [&](uint32_t q) { return pairs_[q].id == ids[i]; });
    for (; p != kNone; p = next_of_id_[p]) {
      const Entry& entry = entries_[pairs_[p].entry];
      if (said_of(&pairs_[p], newest_absence(entry, end), end) == Said::present) out->emplace_back(entry.fingerprint, ids[i]);
    }
  }
  std::sort(out->begin(), out->end());
  out->erase(std::unique(out->begin(), out->end()), out->end());
}

void Delta::export_state(uint32_t end, Export* out, const Pause& pause) const {
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t e = 0; e < entries_.size(); ++e)
    if (newest(entries_[e].presence, end)) order.emplace_back(entries_[e].fingerprint, e);
  std::sort(order.begin(), order.end());
  out->add_lims.push_back(0);
  out->remove_lims.push_back(0);
  for (size_t i = 0; i < order.size(); ++i) {
    pause(kLookUpWork);
    if (i + kGroup < order.size()) fetch_line(&entries_[order[i + kGroup].second]);
    const Entry& entry = entries_[order[i].second];
    const Event* absence = newest_absence(entry, end);
    for (uint32_t p = entry.pairs; p != kNone; p = pairs_[p].next_of_entry) {
      const Said said = said_of(&pairs_[p], absence, end);
      if (said == Said::present) out->add_ids.push_back(pairs_[p].id);
      else if (said == Said::absent && !absence && entry.in_base) out->remove_ids.push_back(pairs_[p].id);
    }
    std::sort(out->add_ids.begin() + out->add_lims.back(), out->add_ids.end());
    std::sort(out->remove_ids.begin() + out->remove_lims.back(), out->remove_ids.end());
    out->fingerprints.push_back(entry.fingerprint);
    out->in_base.push_back(entry.in_base);
    out->wiped.push_back(absence != nullptr);
    out->add_lims.push_back(static_cast<int64_t>(out->add_ids.size()));
    out->remove_lims.push_back(static_cast<int64_t>(out->remove_ids.size()));
  }
}

// --- Probes -----------------------------------------------------------------------------------

namespace {

bool push(Sink* sink, uint64_t fingerprint, size_t query, unsigned distance) {
  if (sink->count == sink->capacity && !grow(sink)) return false;
  sink->matches[sink->count++] = Match{fingerprint, static_cast<uint32_t>(query), distance};
  return true;
}

}  // namespace

bool Delta::probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const {
  const Kernels& k = kernels();
  NearIndex::Places places[kGroup];
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
      if (!index_.probe(k, queries[i + j], radius, places[j], [&](uint64_t fingerprint, unsigned distance) {
            entry_slots_.prefetch(mix(fingerprint));
            return push(sink, fingerprint, i + j, distance);
          }))
        return false;
      keep_present(before, end, sink);
      pause(kBlockWork + index_.size_of(places[j], radius) + (sink->count - before) * kLookUpWork);
    }
  }
  return true;
}

// Leaves out the matches from a place on that are absent.
void Delta::keep_present(uint64_t from, uint32_t end, Sink* sink) const {
  for (uint64_t i = from; i < sink->count; ++i) prefetch_entry(mix(sink->matches[i].fingerprint));
  uint64_t kept = from;
  for (uint64_t i = from; i < sink->count; ++i)
    if (is_present(sink->matches[i].fingerprint, end)) sink->matches[kept++] = sink->matches[i];
  sink->count = kept;
}

bool Delta::scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const {
  // So many queries at a time that a pause comes before long.
  const size_t most = std::max<size_t>(kGroup, kInsertWork / (index_.size() + 1));
  for (size_t i = 0; i < n; i += most) {
    const size_t m = std::min(most, n - i);
    if (!scan_some(queries, i, m, radius, end, sink)) return false;
    pause(m * index_.size());
  }
  return true;
}

bool Delta::scan_some(const uint64_t* queries, size_t first, size_t n, unsigned radius, uint32_t end, Sink* sink) const {
  const Kernels& k = kernels();
  std::vector<uint32_t> hits(NearIndex::kScan);
  std::vector<uint8_t> known(NearIndex::kScan);  // 1: looked up and present, 2: and absent
  return index_.scan([&](const uint64_t* keys, size_t count) {
    std::fill(known.begin(), known.end(), 0);
    for (size_t i = first; i < first + n; ++i) {
      const size_t found = k.near(keys, count, queries[i], radius, hits.data());
      for (size_t j = 0; j < found; ++j) {
        const uint64_t key = keys[hits[j]];
        uint8_t& state = known[hits[j]];
        if (!state) state = is_present(key, end) ? 1 : 2;
        if (state == 1 && !push(sink, key, i, static_cast<unsigned>(__builtin_popcountll(key ^ queries[i])))) return false;
      }
    }
    return true;
  });
}

// --- Changes ----------------------------------------------------------------------------------

// Asks for what the changes of a group wait for, step by step.
void Delta::prefetch(const uint64_t* fingerprints, const uint64_t* ids, const uint8_t* in_base, size_t n,
                     NearIndex::Places* places, uint64_t* hashes) const {
  for (size_t j = 0; j < n; ++j) {
    hashes[j] = mix(fingerprints[j]);
    entry_slots_.prefetch(hashes[j]);
    if (has_id_index_) id_slots_.prefetch(mix(ids[j]));
    places[j] = index_.places(fingerprints[j]);
    if (!in_base[j]) index_.prefetch_buckets(places[j], index_.radius());
  }
  for (size_t j = 0; j < n; ++j) prefetch_entry(hashes[j]);
}

// The entry of a fingerprint, made if there was none; kNone when memory runs out. One without a change says nothing.
uint32_t Delta::put_entry(uint64_t hash, uint64_t fingerprint, bool in_base, const NearIndex::Places& at) {
  const uint32_t known = find_entry(hash, fingerprint);
  if (known != kNone) return known;
  const uint32_t e = static_cast<uint32_t>(entries_.size());
  if (e >= kNone - 1 || !entries_.reserve(e + uint64_t{1}) || !entry_slots_.reserve([&] {
        for (uint32_t i = 0; i < e; ++i) {
          if (i + kGroup < e) entry_slots_.prefetch(mix(entries_[i + kGroup].fingerprint));
          entry_slots_.put(mix(entries_[i].fingerprint), i);
        }
      }) ||
      (!in_base && !index_.add(fingerprint, at)))
    return kNone;
  entries_.push(Entry{fingerprint, kNone, 0, in_base, 0, Event{kNone, 0, 0}});
  entry_slots_.put(hash, e);
  return e;
}

bool Delta::index_ids() {
  if (has_id_index_) return true;
  if (!id_slots_.reserve([] {}, pairs_.size()) || !next_of_id_.reserve(pairs_.size())) return false;
  next_of_id_.resize(pairs_.size());
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    if (i + kGroup < pairs_.size()) id_slots_.prefetch(mix(pairs_[i + kGroup].id));
    put_id(i);
  }
  return has_id_index_ = true;
}

// Room for one more pair in the index of ids.
bool Delta::reserve_id() {
  if (!has_id_index_) return true;
  const auto refill = [&] {
    for (uint32_t i = 0; i < pairs_.size(); ++i) {
      if (i + kGroup < pairs_.size()) id_slots_.prefetch(mix(pairs_[i + kGroup].id));
      put_id(i);
    }
  };
  return next_of_id_.reserve(pairs_.size() + 1) && id_slots_.reserve(refill);
}

void Delta::put_id(uint32_t pair) {
  const uint64_t id = pairs_[pair].id;
  uint32_t next = kNone;
  id_slots_.put(mix(id), pair, [&](uint32_t p) {
    if (pairs_[p].id != id) return false;
    next = p;
    return true;
  });
  next_of_id_[pair] = next;
}

void Delta::put_pair_slot(uint32_t pair) { pair_slots_.put(pair_hash(pairs_[pair].entry, pairs_[pair].id), pair); }

// The pair of an entry and an id, made if there was none; kNone when memory runs out. What was made is taken back by undo().
uint32_t Delta::put_pair(uint32_t entry, uint64_t id) {
  const uint32_t known = find_pair(entry, id);
  if (known != kNone) return known;
  Entry& e = entries_[entry];
  const uint32_t p = static_cast<uint32_t>(pairs_.size());
  const auto refill_pairs = [&] {
    for (uint32_t i = 0; i < pairs_.size(); ++i)
      if (entries_[pairs_[i].entry].pair_count > kWalk) put_pair_slot(i);
  };
  if (e.pair_count == kMostPairs) return kNone;
  if (p >= kNone - 1 || !pairs_.reserve(p + uint64_t{1}) || !reserve_id()) return kNone;
  if (e.pair_count >= kWalk && !pair_slots_.reserve(refill_pairs, e.pair_count == kWalk ? kWalk + 1 : 1)) return kNone;
  pairs_.push(Pair{id, entry, e.pairs, Event{kNone, 0, 0}});
  e.pairs = p;
  if (has_id_index_) {
    next_of_id_.push(kNone);
    put_id(p);
  }
  if (++e.pair_count == kWalk + 1)
    for (uint32_t q = p; q != kNone; q = pairs_[q].next_of_entry) put_pair_slot(q);
  else if (e.pair_count > kWalk)
    put_pair_slot(p);
  return p;
}

bool Delta::record(Event* event, bool holds) {
  uint32_t older = 0;
  if (event->serial != kNone) {
    if (history_.size() >= kNone >> 1 || !history_.reserve(history_.size() + 1)) return false;
    history_.push(*event);
    older = static_cast<uint32_t>(history_.size());
  }
  *event = Event{serial_, holds, older};
  return true;
}

Applied Delta::change(Change kind, uint64_t hash, uint64_t fingerprint, uint64_t id, bool in_base, const NearIndex::Places& at) {
  if (serial_ >= kNone - 1) return Applied::out_of_memory;
  const uint32_t entry = put_entry(hash, fingerprint, in_base, at);
  if (entry == kNone) return Applied::out_of_memory;
  Entry& e = entries_[entry];
  if (e.in_base != in_base) return Applied::base_changed;
  const bool present = kind == Change::add || kind == Change::remove;
  if (present) {
    const uint32_t p = put_pair(entry, id);
    if (p == kNone) return Applied::out_of_memory;
    const Said wanted = kind == Change::add ? Said::present : Said::absent;
    if (said_of(&pairs_[p], newest_absence(e, serial_), serial_) != wanted && !record(&pairs_[p].presence, kind == Change::add))
      return Applied::out_of_memory;
  }
  if ((e.presence.serial == kNone || e.presence.holds != present) && !record(&e.presence, present)) return Applied::out_of_memory;
  if (!present && e.in_base && !e.removed) {
    e.removed = 1;
    ++removals_;
  }
  ++serial_;
  return Applied::ok;
}

// Makes the changes so far those of the version.
void Delta::commit(uint32_t version) {
  if (versions_.size() && versions_[versions_.size() - 1].version == version) versions_[versions_.size() - 1].end = serial_;
  else versions_.push(Version{version, serial_});
}

// Takes back the changes from a serial number on, when one after them could not be made. What entries they made stays, without
// changes.
void Delta::undo(uint32_t serial, uint64_t pair_count, uint64_t history_count) {
  const auto revert = [&](Event* e) {
    while (e->serial != kNone && e->serial >= serial) *e = e->older ? history_[e->older - 1] : Event{kNone, 0, 0};
  };
  for (uint64_t p = pairs_.size(); p-- > pair_count;) {
    Entry& e = entries_[pairs_[p].entry];
    e.pairs = pairs_[p].next_of_entry;
    --e.pair_count;
    pairs_.pop();
  }
  for (uint64_t p = 0; p < pair_count; ++p) revert(&pairs_[p].presence);
  for (uint64_t i = 0; i < entries_.size(); ++i) {
    Entry& e = entries_[i];
    revert(&e.presence);
    if (e.removed && !newest_absence(e, kNone)) {
      e.removed = 0;
      --removals_;
    }
  }
  history_.resize(history_count);
  if (has_id_index_) next_of_id_.resize(pair_count);
  serial_ = serial;
  id_slots_.clear();
  pair_slots_.clear();
  for (uint32_t p = 0; p < pair_count; ++p) {
    if (has_id_index_) put_id(p);
    if (entries_[pairs_[p].entry].pair_count > kWalk) put_pair_slot(p);
  }
}

Applied Delta::apply(const Changes& rows, uint32_t version) {
  if (versions_.size() && version < versions_[versions_.size() - 1].version) return Applied::old_version;
  if (!rows.count) return Applied::ok;
  if (!versions_.reserve(versions_.size() + 1)) return Applied::out_of_memory;
  const uint32_t serial = serial_;
  const uint64_t pair_count = pairs_.size(), history_count = history_.size();
  NearIndex::Places places[kGroup];
  uint64_t hashes[kGroup];
  for (size_t i = 0; i < rows.count; i += kGroup) {
    const size_t m = std::min<size_t>(kGroup, rows.count - i);
    prefetch(rows.fingerprints + i, rows.ids + i, rows.in_base + i, m, places, hashes);
    for (size_t j = 0; j < m; ++j)
      if (!rows.in_base[i + j]) index_.prefetch_ends(places[j]);
    for (size_t j = 0; j < m; ++j) {
      const Applied applied = change(static_cast<Change>(rows.kinds[i + j] & 3), hashes[j], rows.fingerprints[i + j],
                                     rows.ids[i + j], rows.in_base[i + j] != 0, places[j]);
      if (applied == Applied::ok) continue;
      undo(serial, pair_count, history_count);
      return applied;
    }
  }
  commit(version);
  return Applied::ok;
}

// The same for one of them.
Applied Delta::probe_insert_one(const Kernels& k, const Asked& rows, size_t q, const NearIndex::Places& at, Sink* sink,
                                uint8_t* inserted) {
  const uint64_t query = rows.queries[q], before = sink->count;
  *inserted = 0;
  if (!index_.probe(k, query, rows.radius, at, [&](uint64_t fingerprint, unsigned distance) {
        return !is_present(fingerprint, kNone) || push(sink, fingerprint, q, distance);
      }))
    return Applied::out_of_memory;
  const bool wanted = rows.matched[q] != 2 && (rows.always || (rows.matched[q] == 0 && sink->count == before));
  if (!wanted || pair_state(query, rows.ids[q], kNone) == Said::present) return Applied::ok;
  *inserted = 1;
  return change(Change::add, mix(query), query, rows.ids[q], rows.in_base[q] != 0, at);
}

Applied Delta::probe_insert(const Asked& rows, size_t* n, uint32_t version, Sink* sink, uint8_t* inserted,
                            const std::function<void()>& deliver) {
  if (versions_.size() && version < versions_[versions_.size() - 1].version) return Applied::old_version;
  if (!versions_.reserve(versions_.size() + 1)) return Applied::out_of_memory;
  const Kernels& k = kernels();
  const size_t all = *n;
  uint64_t work = 0;
  *n = 0;
  const uint32_t serial = serial_;
  const uint64_t pair_count = pairs_.size(), history_count = history_.size();
  NearIndex::Places places[kGroup];
  uint64_t hashes[kGroup];
  for (size_t i = 0; i < all && work < kInsertWork; i += kGroup) {
    const size_t m = std::min<size_t>(kGroup, all - i);
    prefetch(rows.queries + i, rows.ids + i, rows.in_base + i, m, places, hashes);
    for (size_t j = 0; j < m; ++j) index_.prefetch_keys(places[j], rows.radius);
    for (size_t j = 0; j < m && work < kInsertWork; ++j, ++*n) {
      work += index_.size_of(places[j], rows.radius);
      const Applied applied = probe_insert_one(k, rows, i + j, places[j], sink, inserted + i + j);
      if (applied == Applied::ok) continue;
      undo(serial, pair_count, history_count);
      *n = 0;
      return applied;
    }
  }
  try {
    deliver();
  } catch (const std::bad_alloc&) {
    undo(serial, pair_count, history_count);
    return Applied::out_of_memory;
  }
  if (serial_ != serial) commit(version);
  return Applied::ok;
}

}  // namespace fpstore
