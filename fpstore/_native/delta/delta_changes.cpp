// The changes of a delta: entries, pairs and events are made, indexed and taken back.
#include "delta/delta.hpp"

#include <algorithm>
#include <utility>

namespace fpstore {

// Asks for what the changes of a group wait for, step by step.
template <class Row>
void DeltaOf<Row>::prefetch(const Row* fingerprints, const uint64_t* ids, const uint8_t* in_base, size_t n,
                     Places* places, uint64_t* hashes) const {
  for (size_t j = 0; j < n; ++j) {
    hashes[j] = mix(fingerprints[j]);
    entry_slots_.prefetch(hashes[j]);
    if (has_id_index_) id_slots_.prefetch(mix(ids[j]));
    if (is_loading_) continue;
    places[j] = index_.places(fingerprints[j]);
    if (!in_base[j]) index_.prefetch_all(places[j]);
  }
  for (size_t j = 0; j < n; ++j) prefetch_entry(hashes[j]);
}

template <class Row>
bool DeltaOf<Row>::reserve_entries(uint64_t more) {
  const auto refill = [&] {
    for (uint32_t i = 0; i < entries_.size(); ++i) {
      if (i + kGroup < entries_.size()) entry_slots_.prefetch(mix(entries_[i + kGroup].fingerprint));
      entry_slots_.put(mix(entries_[i].fingerprint), i);
    }
  };
  return entries_.reserve(entries_.size() + more) && entry_slots_.reserve(refill, more);
}

// The entry of a fingerprint, made if there was none; kNone when memory runs out. One without a change says nothing.
template <class Row>
uint32_t DeltaOf<Row>::put_entry(uint64_t hash, const Row& fingerprint, bool in_base, const Places& at) {
  const uint32_t known = find_entry(hash, fingerprint);
  if (known != kNone) return known;
  const uint32_t e = static_cast<uint32_t>(entries_.size());
  if (e >= kNone - 1 || !reserve_entries(1)) return kNone;
  if (!in_base && !is_loading_ && !index_.add(fingerprint, at)) return kNone;
  entries_.push(Entry{fingerprint, kNone, 0, in_base, 0, Event{kNone, 0, 0}});
  entry_slots_.put(hash, e);
  return e;
}

template <class Row>
bool DeltaOf<Row>::load(uint64_t changes) {
  if (changes >= kNone || !reserve_entries(changes) || !pairs_.reserve(pairs_.size() + changes)) return false;
  is_loading_ = true;
  return true;
}

template <class Row>
bool DeltaOf<Row>::index(const Pause& pause) {
  if (!is_loading_) return true;
  std::vector<Row> fingerprints;
  fingerprints.reserve(entries_.size());
  for (uint64_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].in_base) fingerprints.push_back(entries_[i].fingerprint);
  if (!index_.fill(fingerprints.data(), fingerprints.size(), pause)) return false;
  is_loading_ = false;
  return true;
}

template <class Row>
bool DeltaOf<Row>::index_ids() {
  if (has_id_index_) return true;
  if (!id_slots_.reserve([] {}, pairs_.size()) || !next_of_id_.reserve(pairs_.size())) return false;
  next_of_id_.resize(pairs_.size());
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    if (i + kGroup < pairs_.size()) id_slots_.prefetch(mix(pairs_[i + kGroup].id));
    put_id(i);
  }
  has_id_index_ = true;
  return true;
}

// Room for one more pair in the index of ids.
template <class Row>
bool DeltaOf<Row>::reserve_id() {
  if (!has_id_index_) return true;
  const auto refill = [&] {
    for (uint32_t i = 0; i < pairs_.size(); ++i) {
      if (i + kGroup < pairs_.size()) id_slots_.prefetch(mix(pairs_[i + kGroup].id));
      put_id(i);
    }
  };
  return next_of_id_.reserve(pairs_.size() + 1) && id_slots_.reserve(refill);
}

template <class Row>
void DeltaOf<Row>::put_id(uint32_t pair) {
  const uint64_t id = pairs_[pair].id;
  uint32_t next = kNone;
  id_slots_.put(mix(id), pair, [&](uint32_t p) {
    if (pairs_[p].id != id) return false;
    next = p;
    return true;
  });
  next_of_id_[pair] = next;
}

template <class Row>
void DeltaOf<Row>::put_pair_slot(uint32_t pair) { pair_slots_.put(pair_hash(pairs_[pair].entry, pairs_[pair].id), pair); }

// The pair of an entry and an id, made if there was none; kNone when memory runs out. What was made is taken back by undo().
template <class Row>
uint32_t DeltaOf<Row>::put_pair(uint32_t entry, uint64_t id) {
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

template <class Row>
bool DeltaOf<Row>::record(Event* event, bool holds) {
  uint32_t older = 0;
  if (event->serial != kNone) {
    if (history_.size() >= kNone >> 1 || !history_.reserve(history_.size() + 1)) return false;
    history_.push(*event);
    older = static_cast<uint32_t>(history_.size());
  }
  *event = Event{serial_, holds, older};
  return true;
}

template <class Row>
Applied DeltaOf<Row>::change(Change kind, uint64_t hash, const Row& fingerprint, uint64_t id, bool in_base, const Places& at) {
  if (serial_ >= kNone - 1) return Applied::out_of_memory;
  const uint32_t entry = put_entry(hash, fingerprint, in_base, at);
  if (entry == kNone) return Applied::out_of_memory;
  Entry& e = entries_[entry];
  if (e.in_base != in_base) return Applied::base_changed;
  const bool present = kind == Change::add || kind == Change::remove;
  if (present) {
    const uint32_t p = put_pair(entry, id);
    if (p == kNone) return Applied::out_of_memory;
    const Presence wanted = kind == Change::add ? Presence::present : Presence::absent;
    if (presence_of(&pairs_[p], newest_absence(e, serial_), serial_) != wanted && !record(&pairs_[p].presence, kind == Change::add))
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

template <class Row>
void DeltaOf<Row>::Attempt::commit(uint32_t version) {
  const uint32_t end = delta_->serial_;
  Column<Version>& versions = std::exchange(delta_, nullptr)->versions_;
  if (end == serial_) return;
  if (versions.size() && versions[versions.size() - 1].version == version) versions[versions.size() - 1].end = end;
  else versions.push(Version{version, end});
}

// Takes back the changes from a serial number on, when one after them could not be made. Entries they made stay, without
// changes.
template <class Row>
void DeltaOf<Row>::undo(uint32_t serial, uint64_t pair_count, uint64_t history_count) {
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

template <class Row>
Applied DeltaOf<Row>::apply(const Changes& rows, uint32_t version) {
  if (versions_.size() && version < versions_[versions_.size() - 1].version) return Applied::old_version;
  if (!rows.count) return Applied::ok;
  if (!versions_.reserve(versions_.size() + 1)) return Applied::out_of_memory;
  const Row* const fingerprints = fpstore::rows<Row>(rows.fingerprints);
  Attempt attempt(this);
  Places places[kGroup];
  uint64_t hashes[kGroup];
  for (size_t i = 0; i < rows.count; i += kGroup) {
    const size_t m = std::min<size_t>(kGroup, rows.count - i);
    prefetch(fingerprints + i, rows.ids + i, rows.in_base + i, m, places, hashes);
    for (size_t j = 0; j < m; ++j)
      if (!rows.in_base[i + j] && !is_loading_) index_.prefetch_ends(places[j]);
    for (size_t j = 0; j < m; ++j) {
      const Applied applied = change(static_cast<Change>(rows.kinds[i + j] & 3), hashes[j], fingerprints[i + j],
                                     rows.ids[i + j], rows.in_base[i + j] != 0, places[j]);
      if (applied != Applied::ok) return applied;
    }
  }
  attempt.commit(version);
  return Applied::ok;
}

// Does what probe_insert, below, does, for one of its rows.
template <class Row>
Applied DeltaOf<Row>::probe_insert_one(const Kernels& k, const Asked& rows, size_t q, const Places& at, Sink* sink,
                                uint8_t* inserted) {
  const Row query = fpstore::rows<Row>(rows.queries)[q];
  const uint64_t before = sink->count;
  *inserted = 0;
  if (!index_.probe(k, query, rows.radius, at, [&](const Row& fingerprint, unsigned distance) {
        return !is_present(fingerprint, kNone) || push(sink, fingerprint, static_cast<uint32_t>(q), distance);
      }))
    return Applied::out_of_memory;
  const bool wanted = rows.matched[q] != 2 && (rows.always || (rows.matched[q] == 0 && sink->count == before));
  if (!wanted || pair_state(query, rows.ids[q], kNone) == Presence::present) return Applied::ok;
  *inserted = 1;
  return change(Change::add, mix(query), query, rows.ids[q], rows.in_base[q] != 0, at);
}

template <class Row>
Applied DeltaOf<Row>::probe_insert(const Asked& rows, size_t* n, uint32_t version, Sink* sink, uint8_t* inserted,
                            const std::function<void()>& deliver) {
  if (versions_.size() && version < versions_[versions_.size() - 1].version) return Applied::old_version;
  if (!versions_.reserve(versions_.size() + 1)) return Applied::out_of_memory;
  const Kernels& k = kernels(width_);
  const size_t all = *n;
  uint64_t work = 0;
  *n = 0;
  Attempt attempt(this);
  Places places[kGroup];
  uint64_t hashes[kGroup];
  for (size_t i = 0; i < all && work < kInsertWork; i += kGroup) {
    const size_t m = std::min<size_t>(kGroup, all - i);
    prefetch(fpstore::rows<Row>(rows.queries) + i, rows.ids + i, rows.in_base + i, m, places, hashes);
    for (size_t j = 0; j < m; ++j) index_.prefetch_keys(places[j], rows.radius);
    for (size_t j = 0; j < m && work < kInsertWork; ++j, ++*n) {
      work += index_.size_of(places[j], rows.radius);
      const Applied applied = probe_insert_one(k, rows, i + j, places[j], sink, inserted + i + j);
      if (applied != Applied::ok) {
        *n = 0;
        return applied;
      }
    }
  }
  deliver();
  attempt.commit(version);
  return Applied::ok;
}

template class DeltaOf<uint64_t>;
template class DeltaOf<Wide<2>>;
template class DeltaOf<Wide<4>>;

}  // namespace fpstore
