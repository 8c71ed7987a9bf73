// The changes of a delta: entries, pairs and events are made, indexed and taken back. Knows nothing
// of Python.
#pragma once
#include <algorithm>
#include <utility>

#include "delta/delta.hpp"

namespace fpstore {

// A fingerprint has an entry; a fingerprint and an id of which a change speaks are a pair. Entries
// and pairs carry their newest event and link to older ones. A fingerprint that becomes absent
// loses all its ids, so the newest absence of an entry outdates what came before in its pairs.
template <class Row>
class DeltaChanges : public Delta {
 public:
  DeltaChanges(unsigned width, unsigned radius, const uint8_t* bits)
      : width_(width), index_(radius, bits, width) {}
  unsigned width() const override { return width_; }
  uint64_t entries() const override { return entries_.size(); }
  uint64_t operations() const override { return serial_; }
  uint64_t removals() const override { return removals_; }
  uint64_t bytes() const override {
    return index_.bytes() + entries_.bytes() + pairs_.bytes() + history_.bytes() +
           versions_.bytes() + entry_slots_.bytes() + pair_slots_.bytes() + id_slots_.bytes() +
           next_of_id_.bytes();
  }
  Applied apply(const Changes& rows, uint32_t version) override {
    if (versions_.size() && version < versions_[versions_.size() - 1].version)
      return Applied::old_version;
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
        const Applied applied =
            change(static_cast<Change>(rows.kinds[i + j] & 3), hashes[j], fingerprints[i + j],
                   rows.ids[i + j], rows.in_base[i + j] != 0, places[j]);
        if (applied != Applied::ok) return applied;
      }
    }
    attempt.commit(version);
    return Applied::ok;
  }

  bool load(uint64_t changes) override {
    if (changes >= kNone || !reserve_entries(changes) || !pairs_.reserve(pairs_.size() + changes))
      return false;
    is_loading_ = true;
    return true;
  }
  bool index(const Pause& pause) override {
    if (!is_loading_) return true;
    std::vector<Row> fingerprints;
    fingerprints.reserve(entries_.size());
    for (uint64_t i = 0; i < entries_.size(); ++i)
      if (!entries_[i].in_base) fingerprints.push_back(entries_[i].fingerprint);
    if (!index_.fill(fingerprints.data(), fingerprints.size(), pause)) return false;
    is_loading_ = false;
    return true;
  }

  bool is_loading() const override { return is_loading_; }
  bool has_id_index() const override { return has_id_index_; }
  bool index_ids() override {
    if (has_id_index_) return true;
    if (!id_slots_.reserve([] {}, pairs_.size()) || !next_of_id_.reserve(pairs_.size()))
      return false;
    next_of_id_.resize(pairs_.size());
    put_ids();
    has_id_index_ = true;
    return true;
  }

 protected:
  struct Event {
    uint32_t serial;
    uint32_t holds : 1;   // present, added
    uint32_t older : 31;  // place in history_ + 1, 0: none
  };
  struct Entry {
    Row fingerprint;
    uint32_t pairs;  // the newest
    uint32_t pair_count : 30;
    uint32_t in_base : 1;
    uint32_t removed : 1;  // has been absent though in the base
    Event presence;        // serial kNone: no change yet
  };

  struct Pair {
    uint64_t id;
    uint32_t entry;
    uint32_t next_of_entry;
    Event presence;
  };
  struct Version {
    uint32_t version;
    uint32_t end;
  };
  static constexpr uint64_t kInsertWork = 1 << 25;  // of one call of probe_insert, in keys compared
  static constexpr uint64_t kLookUpWork = 32;       // of looking up one fingerprint
  static constexpr unsigned kGroup = 16;  // rows or queries whose memory is asked for together
  // IdPairs of an entry up to which they are walked; those of entries with more are all in
  // pair_slots_.
  static constexpr uint32_t kWalk = 4;
  static constexpr uint32_t kMaxPairs =
      (uint32_t{1} << 30) - 1;  // of an entry, which counts them in 30 bits
  using Places = typename NearIndex<Row>::Places;
  uint64_t mix(uint64_t x) const {
    x = (x ^ seed_) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 32)) * 0x94D049BB133111EB;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
    return x ^ (x >> 32);
  }
  template <unsigned Words>
  uint64_t mix(const Wide<Words>& x) const {
    uint64_t sum = 0;
    for (unsigned i = 0; i < Words; ++i) sum = mix(sum ^ x.word[i]);
    return sum;
  }
  uint64_t pair_hash(uint32_t entry, uint64_t id) const {
    return mix(id + entry * uint64_t{0x9E3779B97F4A7C15});
  }
  uint32_t find_entry(uint64_t hash, const Row& fingerprint) const {
    return entry_slots_.find(hash,
                             [&](uint32_t e) { return entries_[e].fingerprint == fingerprint; });
  }
  // The second step after entry_slots_.prefetch().
  void prefetch_entry(uint64_t hash) const {
    const uint32_t entry = entry_slots_.peek(hash);
    if (entry != kNone) fetch_line(&entries_[entry]);
  }
  uint32_t find_pair(uint32_t entry, uint64_t id) const {
    if (entries_[entry].pair_count > kWalk)
      return pair_slots_.find(pair_hash(entry, id), [&](uint32_t p) {
        return pairs_[p].entry == entry && pairs_[p].id == id;
      });
    uint32_t p = entries_[entry].pairs;
    while (p != kNone && pairs_[p].id != id) p = pairs_[p].next_of_entry;
    return p;
  }
  // The newest event before end, if any.
  const Event* newest(const Event& event, uint32_t end) const {
    const Event* e = &event;
    while (e->serial >= end) {
      if (!e->older) return nullptr;
      e = &history_[e->older - 1];
    }
    return e;
  }

  // Few steps: presence and absence take turns.
  const Event* newest_absence(const Entry& entry, uint32_t end) const {
    const Event* e = newest(entry.presence, end);
    while (e && e->holds) e = e->older ? &history_[e->older - 1] : nullptr;
    return e;
  }
  Presence state(const Row& fingerprint, uint32_t end) const {
    const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
    const Event* e = entry == kNone ? nullptr : newest(entries_[entry].presence, end);
    return !e ? Presence::unknown : e->holds ? Presence::present : Presence::absent;
  }
  bool is_present(const Row& fingerprint, uint32_t end) const {
    return state(fingerprint, end) == Presence::present;
  }
  Presence pair_state(const Row& fingerprint, uint64_t id, uint32_t end) const {
    const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
    if (entry == kNone) return Presence::unknown;
    const uint32_t p = find_pair(entry, id);
    return presence_of(p == kNone ? nullptr : &pairs_[p], newest_absence(entries_[entry], end),
                       end);
  }
  Presence presence_of(const Pair* pair, const Event* absence, uint32_t end) const {
    const Event* e = pair ? newest(pair->presence, end) : nullptr;
    if (e && (!absence || e->serial > absence->serial))
      return e->holds ? Presence::present : Presence::absent;
    return absence ? Presence::absent : Presence::unknown;
  }
  // Asks for what the changes of a group wait for, step by step.
  void prefetch(const Row* fingerprints, const uint64_t* ids, const uint8_t* in_base, size_t n,
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

  bool reserve_entries(uint64_t more) {
    const auto refill = [&] {
      for (uint32_t i = 0; i < entries_.size(); ++i) {
        if (i + kGroup < entries_.size())
          entry_slots_.prefetch(mix(entries_[i + kGroup].fingerprint));
        entry_slots_.put(mix(entries_[i].fingerprint), i);
      }
    };
    return entries_.reserve(entries_.size() + more) && entry_slots_.reserve(refill, more);
  }

  // The entry of a fingerprint, made if there was none; kNone when memory runs out. One without a
  // change says nothing.
  uint32_t put_entry(uint64_t hash, const Row& fingerprint, bool in_base, const Places& at) {
    const uint32_t known = find_entry(hash, fingerprint);
    if (known != kNone) return known;
    const uint32_t e = static_cast<uint32_t>(entries_.size());
    if (e >= kNone - 1 || !reserve_entries(1)) return kNone;
    if (!in_base && !is_loading_ && !index_.add(fingerprint, at)) return kNone;
    entries_.push(Entry{fingerprint, kNone, 0, in_base, 0, Event{kNone, 0, 0}});
    entry_slots_.put(hash, e);
    return e;
  }

  // The pair of an entry and an id, made if there was none; kNone when memory runs out. What was
  // made is taken back by undo().
  uint32_t put_pair(uint32_t entry, uint64_t id) {
    const uint32_t known = find_pair(entry, id);
    if (known != kNone) return known;
    Entry& e = entries_[entry];
    const uint32_t p = static_cast<uint32_t>(pairs_.size());
    const auto refill_pairs = [&] {
      for (uint32_t i = 0; i < pairs_.size(); ++i)
        if (entries_[pairs_[i].entry].pair_count > kWalk) put_pair_slot(i);
    };
    if (e.pair_count == kMaxPairs) return kNone;
    if (p >= kNone - 1 || !pairs_.reserve(p + uint64_t{1}) || !reserve_id()) return kNone;
    if (e.pair_count >= kWalk &&
        !pair_slots_.reserve(refill_pairs, e.pair_count == kWalk ? kWalk + 1 : 1))
      return kNone;
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

  // Room for one more pair in the index of ids.
  bool reserve_id() {
    if (!has_id_index_) return true;
    return next_of_id_.reserve(pairs_.size() + 1) && id_slots_.reserve([this] { put_ids(); });
  }
  void put_ids() {
    for (uint32_t i = 0; i < pairs_.size(); ++i) {
      if (i + kGroup < pairs_.size()) id_slots_.prefetch(mix(pairs_[i + kGroup].id));
      put_id(i);
    }
  }
  void put_id(uint32_t pair) {
    const uint64_t id = pairs_[pair].id;
    uint32_t next = kNone;
    id_slots_.put(mix(id), pair, [&](uint32_t p) {
      if (pairs_[p].id != id) return false;
      next = p;
      return true;
    });
    next_of_id_[pair] = next;
  }

  void put_pair_slot(uint32_t pair) {
    pair_slots_.put(pair_hash(pairs_[pair].entry, pairs_[pair].id), pair);
  }
  bool record(Event* event, bool holds) {
    uint32_t older = 0;
    if (event->serial != kNone) {
      if (history_.size() >= kNone >> 1 || !history_.reserve(history_.size() + 1)) return false;
      history_.push(*event);
      older = static_cast<uint32_t>(history_.size());
    }
    *event = Event{serial_, holds, older};
    return true;
  }

  Applied change(Change kind, uint64_t hash, const Row& fingerprint, uint64_t id, bool in_base,
                 const Places& at) {
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
      if (presence_of(&pairs_[p], newest_absence(e, serial_), serial_) != wanted &&
          !record(&pairs_[p].presence, kind == Change::add))
        return Applied::out_of_memory;
    }
    if ((e.presence.serial == kNone || e.presence.holds != present) &&
        !record(&e.presence, present))
      return Applied::out_of_memory;
    if (!present && e.in_base && !e.removed) {
      e.removed = 1;
      ++removals_;
    }
    ++serial_;
    return Applied::ok;
  }

  // Takes back the changes from a serial number on, when one after them could not be made. Entries
  // they made stay, without changes.
  void undo(uint32_t serial, uint64_t pair_count, uint64_t history_count) {
    const auto revert = [&](Event* e) {
      while (e->serial != kNone && e->serial >= serial)
        *e = e->older ? history_[e->older - 1] : Event{kNone, 0, 0};
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

  // The changes of one call. Those that were not committed are taken back at its end, however it
  // comes.
  class Attempt {
   public:
    explicit Attempt(DeltaChanges* delta)
        : delta_(delta),
          serial_(delta->serial_),
          pair_count_(delta->pairs_.size()),
          history_count_(delta->history_.size()) {}
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;
    ~Attempt() {
      if (delta_) delta_->undo(serial_, pair_count_, history_count_);
    }
    // Makes the changes so far, if there are any, those of the version, for which there is room.
    void commit(uint32_t version) {
      const uint32_t end = delta_->serial_;
      Column<Version>& versions = std::exchange(delta_, nullptr)->versions_;
      if (end == serial_) return;
      if (versions.size() && versions[versions.size() - 1].version == version)
        versions[versions.size() - 1].end = end;
      else
        versions.push(Version{version, end});
    }

   private:
    DeltaChanges* delta_;
    const uint32_t serial_;
    const uint64_t pair_count_, history_count_;
  };

  unsigned width_;
  NearIndex<Row> index_;  // of the entries that are not in the base
  Column<Entry> entries_;
  Column<Pair> pairs_;
  Column<Event> history_;
  Column<Version> versions_;
  Slots entry_slots_, pair_slots_;
  // By id: the newest pair that has it, and for each pair the one before with its id. Made when an
  // id is looked up for the first time: most stores are never asked.
  Slots id_slots_;
  Column<uint32_t> next_of_id_;
  bool has_id_index_ = false;
  bool is_loading_ = false;
  uint32_t serial_ = 0;
  uint64_t removals_ = 0;
  const uint64_t seed_ = random_word();  // fingerprints may be chosen to collide
};

}  // namespace fpstore
