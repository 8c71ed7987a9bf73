// The changes on top of immutable tables, in memory and by version: which fingerprints are present with which ids. Knows nothing
// of Python.
#pragma once
#include <functional>
#include <vector>

#include "delta/gate.hpp"
#include "delta/near_index.hpp"

namespace fpstore {

enum class Change : uint8_t { add, remove, wipe };

struct Changes {
  const uint8_t* kinds;
  const uint64_t* fingerprints;
  const uint64_t* ids;
  const uint8_t* in_base;
  size_t count;
};

// Queries, each with the id under which it may be added. matched: 1 counts as a match, 2 is never added.
struct Asked {
  const uint64_t* queries;
  const uint64_t* ids;
  const uint8_t* matched;
  const uint8_t* in_base;
  unsigned radius;
  bool always;  // add also what has a match
};

// Adds a match; false when memory runs out.
inline bool push(Sink* sink, uint64_t fingerprint, size_t query, unsigned distance) {
  if (sink->count == sink->capacity && !grow(sink)) return false;
  sink->matches[sink->count++] = Match{fingerprint, static_cast<uint32_t>(query), distance};
  return true;
}

// What the delta says of a fingerprint's or a pair's presence.
enum class Said : uint8_t { nothing, present, absent };

enum class Applied { ok, out_of_memory, base_changed, old_version };

// The fingerprints with changes, ascending, and the ids of those that are not in the tables.
struct Export {
  std::vector<uint64_t> fingerprints;
  std::vector<uint8_t> in_base;
  std::vector<int64_t> lims;
  std::vector<uint64_t> ids;
};

// Each change has a serial number, and a reader sees those below the end of its version. A fingerprint has an entry; a
// fingerprint and an id of which a change speaks are a pair. Entries and pairs carry their newest event and link to older ones. A
// fingerprint that becomes absent loses all its ids, so the newest absence of an entry outdates what came before in its pairs.
// The caller holds the gate: shared for const members, alone for the others. A pause of a reader may give it up meanwhile: what is
// visible at a version stays as it is. Members may throw std::bad_alloc, and then have changed nothing.
class Delta {
 public:
  Delta(unsigned radius, const uint8_t bits[64]) : index_(radius, bits) {}

  mutable Gate gate;

  unsigned radius() const { return index_.radius(); }
  uint64_t entries() const { return entries_.size(); }
  uint64_t operations() const { return serial_; }
  uint64_t removals() const { return removals_; }
  uint64_t bytes() const;

  // Versions do not descend; all changes are taken or none. A delta that is loading does not index fingerprints: index() does,
  // all at once, before anything is probed.
  Applied apply(const Changes& rows, uint32_t version);
  // An empty delta begins to load, or one that does makes room for more changes. These two are false when memory runs out.
  bool load(uint64_t changes);
  bool index(const Pause& pause);
  bool is_loading() const { return is_loading_; }

  // What probe() finds now goes to the sink; queries without a match (or all) are added. Only the first *n are taken, and *n is set
  // to them, when those are a good deal of work. All is taken back when deliver, which is called at the end, throws std::bad_alloc.
  Applied probe_insert(const Asked& rows, size_t* n, uint32_t version, Sink* sink, uint8_t* inserted,
                       const std::function<void()>& deliver);

  // The first serial number that a reader of this version does not see.
  uint32_t end_of(uint32_t version) const;

  // Fingerprints not in the base, present before end, within the radius. False when memory runs out.
  bool probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const;
  bool scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const;
  // The same, but keeps the nearest of each query.
  bool scan(const uint64_t* queries, size_t n, uint32_t end, Nearest* nearest, const Pause& pause) const;

  Said state(uint64_t fingerprint, uint32_t end) const;
  void states(const uint64_t* fingerprints, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const;
  void pairs(const uint64_t* fingerprints, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const;
  // Appends the ids of a fingerprint whose ids in the base are these, ascending.
  void ids(uint64_t fingerprint, const uint64_t* base, size_t n, uint32_t end, std::vector<uint64_t>* out) const;
  // Whether find() may be called; the first who wants to calls index_ids(), which is false when memory runs out.
  bool has_id_index() const { return has_id_index_; }
  bool index_ids();
  // Pairs that were added, have one of the ids and are present: ascending, each once.
  void find(const uint64_t* ids, size_t n, uint32_t end, std::vector<std::pair<uint64_t, uint64_t>>* out,
            const Pause& pause) const;
  void export_state(uint32_t end, Export* out, const Pause& pause) const;

 private:
  struct Event {
    uint32_t serial;
    uint32_t holds : 1;   // present, added
    uint32_t older : 31;  // place in history_ + 1, 0: none
  };
  struct Entry {
    uint64_t fingerprint;
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
  static constexpr uint64_t kLookUpWork = 32;  // of looking up one fingerprint
  static constexpr unsigned kGroup = 16;  // rows or queries whose memory is asked for together
  // Pairs of an entry up to which they are walked; those of entries with more are all in pair_slots_.
  static constexpr uint32_t kWalk = 4;
  static constexpr uint32_t kMostPairs = (uint32_t{1} << 30) - 1;  // of an entry, which counts them in 30 bits

  uint64_t mix(uint64_t x) const;
  uint64_t pair_hash(uint32_t entry, uint64_t id) const { return mix(id + entry * uint64_t{0x9E3779B97F4A7C15}); }
  uint32_t find_entry(uint64_t hash, uint64_t fingerprint) const;
  void prefetch_entry(uint64_t hash) const;
  uint32_t find_pair(uint32_t entry, uint64_t id) const;
  const Event* newest(const Event& event, uint32_t end) const;
  const Event* newest_absence(const Entry& entry, uint32_t end) const;
  bool is_present(uint64_t fingerprint, uint32_t end) const;
  void keep_present(uint64_t from, uint32_t end, Sink* sink) const;
  template <class Visit>
  bool scan_parts(size_t n, const Pause& pause, const Visit& visit) const;
  template <class Bound, class Emit>
  bool scan_some(const uint64_t* queries, size_t first, size_t n, uint32_t end, const Bound& bound, const Emit& emit) const;
  Said pair_state(uint64_t fingerprint, uint64_t id, uint32_t end) const;
  Said said_of(const Pair* pair, const Event* absence, uint32_t end) const;

  void prefetch(const uint64_t* fingerprints, const uint64_t* ids, const uint8_t* in_base, size_t n, NearIndex::Places* places,
                uint64_t* hashes) const;
  bool reserve_entries(uint64_t more);
  uint32_t put_entry(uint64_t hash, uint64_t fingerprint, bool in_base, const NearIndex::Places& at);
  uint32_t put_pair(uint32_t entry, uint64_t id);
  bool reserve_id();
  void put_id(uint32_t pair);
  void put_pair_slot(uint32_t pair);
  bool record(Event* event, bool holds);
  Applied probe_insert_one(const Kernels& k, const Asked& rows, size_t q, const NearIndex::Places& at, Sink* sink,
                           uint8_t* inserted);
  Applied change(Change kind, uint64_t hash, uint64_t fingerprint, uint64_t id, bool in_base, const NearIndex::Places& at);
  void commit(uint32_t version);
  void undo(uint32_t serial, uint64_t pair_count, uint64_t history_count);

  NearIndex index_;  // of the entries that are not in the base
  Column<Entry> entries_;
  Column<Pair> pairs_;
  Column<Event> history_;
  Column<Version> versions_;
  Slots entry_slots_, pair_slots_;
  // By id: the newest pair that has it, and for each pair the one before with its id. Made when an id is looked up for the first
  // time: most stores are never asked.
  Slots id_slots_;
  Column<uint32_t> next_of_id_;
  bool has_id_index_ = false;
  bool is_loading_ = false;
  uint32_t serial_ = 0;
  uint64_t removals_ = 0;
  const uint64_t seed_ = random_seed();  // fingerprints may be chosen to collide

  uint64_t random_seed() const;
};

inline uint64_t Delta::mix(uint64_t x) const {
  x = (x ^ seed_) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EB;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

inline uint32_t Delta::find_entry(uint64_t hash, uint64_t fingerprint) const {
  return entry_slots_.find(hash, [&](uint32_t e) { return entries_[e].fingerprint == fingerprint; });
}

// The second step after entry_slots_.prefetch().
inline void Delta::prefetch_entry(uint64_t hash) const {
  const uint32_t entry = entry_slots_.peek(hash);
  if (entry != kNone) fetch_line(&entries_[entry]);
}

inline uint32_t Delta::find_pair(uint32_t entry, uint64_t id) const {
  if (entries_[entry].pair_count > kWalk)
    return pair_slots_.find(pair_hash(entry, id), [&](uint32_t p) { return pairs_[p].entry == entry && pairs_[p].id == id; });
  uint32_t p = entries_[entry].pairs;
  while (p != kNone && pairs_[p].id != id) p = pairs_[p].next_of_entry;
  return p;
}

// The newest event before end, if any.
inline const Delta::Event* Delta::newest(const Event& event, uint32_t end) const {
  const Event* e = &event;
  while (e->serial >= end) {
    if (!e->older) return nullptr;
    e = &history_[e->older - 1];
  }
  return e;
}

// Few steps: presence and absence take turns.
inline const Delta::Event* Delta::newest_absence(const Entry& entry, uint32_t end) const {
  const Event* e = newest(entry.presence, end);
  while (e && e->holds) e = e->older ? &history_[e->older - 1] : nullptr;
  return e;
}

inline Said Delta::said_of(const Pair* pair, const Event* absence, uint32_t end) const {
  const Event* e = pair ? newest(pair->presence, end) : nullptr;
  if (e && (!absence || e->serial > absence->serial)) return e->holds ? Said::present : Said::absent;
  return absence ? Said::absent : Said::nothing;
}

}  // namespace fpstore
