// The changes on top of immutable tables, in memory and by version: which fingerprints are present with which ids. Knows nothing
// of Python.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "delta/near_index.hpp"

namespace fpstore {

// A reader-writer lock without starvation: everybody passes gate_ first, and a writer holds it until it unlocks.
class Gate {
 public:
  void lock() {
    gate_.lock();
    access_.lock();
  }
  bool try_lock() {
    if (!gate_.try_lock()) return false;
    if (access_.try_lock()) return true;
    gate_.unlock();
    return false;
  }
  void unlock() {
    access_.unlock();
    gate_.unlock();
  }
  void lock_shared() {
    std::lock_guard<std::mutex> turn(gate_);
    access_.lock_shared();
  }
  bool try_lock_shared() {
    std::unique_lock<std::mutex> turn(gate_, std::try_to_lock);
    return turn.owns_lock() && access_.try_lock_shared();
  }
  void unlock_shared() { access_.unlock_shared(); }

 private:
  std::mutex gate_;
  std::shared_mutex access_;
};

enum class Change : uint8_t { add, remove, wipe };

struct Changes {
  const uint8_t* kinds;
  const uint64_t* fingerprints;  // rows
  const uint64_t* ids;
  const uint8_t* in_base;
  size_t count;
};

// Queries, each with the id under which it may be added. matched: 1 counts as a match, 2 is never added.
struct Asked {
  const uint64_t* queries;  // rows
  const uint64_t* ids;
  const uint8_t* matched;
  const uint8_t* in_base;
  unsigned radius;
  bool always;  // add also what has a match
};

// What the delta says of a fingerprint's or a pair's presence.
enum class Presence : uint8_t { unknown, present, absent };

enum class Applied { ok, out_of_memory, base_changed, old_version };

struct IdPairs {
  std::vector<uint64_t> fingerprints;  // rows
  std::vector<uint64_t> ids;
};

// The fingerprints with changes, ascending, and the ids of those that are not in the tables.
struct Export {
  std::vector<uint64_t> fingerprints;  // rows
  std::vector<uint8_t> in_base;
  std::vector<int64_t> lims;
  std::vector<uint64_t> ids;
};

// Fingerprints are rows, in arrays of words. Each change has a serial number, and a reader sees those below the end of its version.
// The caller holds the gate: shared for const members, alone for the others. A pause of a reader may give it up meanwhile: what is
// visible at a version stays as it is. Members may throw std::bad_alloc, and then have changed nothing.
class Delta {
 public:
  virtual ~Delta() = default;

  mutable Gate gate;

  virtual unsigned width() const = 0;  // bits of a fingerprint
  virtual uint64_t entries() const = 0;
  virtual uint64_t operations() const = 0;
  virtual uint64_t removals() const = 0;
  virtual uint64_t bytes() const = 0;

  // Versions do not descend; all changes are taken or none. A delta that is loading does not index fingerprints: index() does,
  // all at once, before anything is probed.
  virtual Applied apply(const Changes& rows, uint32_t version) = 0;
  // An empty delta begins to load, or one that does makes room for more changes. These two are false when memory runs out.
  virtual bool load(uint64_t changes) = 0;
  virtual bool index(const Pause& pause) = 0;
  virtual bool is_loading() const = 0;

  // What probe() finds now goes to the sink; queries without a match (or all) are added. Only the first *n are taken, and *n is set
  // to them, when those are a good deal of work. All is taken back when deliver, which is called at the end, throws.
  virtual Applied probe_insert(const Asked& rows, size_t* n, uint32_t version, Sink* sink, uint8_t* inserted,
                               const std::function<void()>& deliver) = 0;

  // The first serial number that a reader of this version does not see.
  virtual uint32_t end_of(uint32_t version) const = 0;

  // Fingerprints not in the base, present before end, within the radius. False when memory runs out.
  virtual bool probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const = 0;
  virtual bool scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const = 0;
  // The same, but keeps the nearest of each query within the radius that start_nearest() was given.
  virtual bool nearest(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Nearest* kept, const Pause& pause) const = 0;

  virtual void states(const uint64_t* fingerprints, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const = 0;
  virtual void pair_states(const uint64_t* fingerprints, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out,
                     const Pause& pause) const = 0;
  // Appends the ids of a fingerprint whose ids in the base are these, ascending.
  virtual void ids(const uint64_t* fingerprint, const uint64_t* base, size_t n, uint32_t end, std::vector<uint64_t>* out) const = 0;
  // Whether find() may be called; the first who wants to calls index_ids(), which is false when memory runs out.
  virtual bool has_id_index() const = 0;
  virtual bool index_ids() = 0;
  // IdPairs that were added, have one of the ids and are present, and those of other, by fingerprint and id, each once.
  virtual IdPairs find(const uint64_t* ids, size_t n, uint32_t end, const IdPairs& other, const Pause& pause) const = 0;
  virtual void export_state(uint32_t end, Export* out, const Pause& pause) const = 0;
};

// An empty delta of fingerprints of a width, whose bits all have a number in bits.
std::unique_ptr<Delta> make_delta(unsigned width, unsigned radius, const uint8_t* bits);

// A fingerprint has an entry; a fingerprint and an id of which a change speaks are a pair. Entries and pairs carry their newest event
// and link to older ones. A fingerprint that becomes absent loses all its ids, so the newest absence of an entry outdates what came
// before in its pairs.
template <class Row>
class DeltaOf final : public Delta {
 public:
  DeltaOf(unsigned width, unsigned radius, const uint8_t* bits) : width_(width), index_(radius, bits, width) {}

  unsigned width() const override { return width_; }
  uint64_t entries() const override { return entries_.size(); }
  uint64_t operations() const override { return serial_; }
  uint64_t removals() const override { return removals_; }
  uint64_t bytes() const override;
  Applied apply(const Changes& rows, uint32_t version) override;
  bool load(uint64_t changes) override;
  bool index(const Pause& pause) override;
  bool is_loading() const override { return is_loading_; }
  Applied probe_insert(const Asked& rows, size_t* n, uint32_t version, Sink* sink, uint8_t* inserted,
                       const std::function<void()>& deliver) override;
  uint32_t end_of(uint32_t version) const override;
  bool probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const override;
  bool scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause) const override;
  bool nearest(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Nearest* kept, const Pause& pause) const override;
  void states(const uint64_t* fingerprints, size_t n, uint32_t end, uint8_t* out, const Pause& pause) const override;
  void pair_states(const uint64_t* fingerprints, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out,
             const Pause& pause) const override;
  void ids(const uint64_t* fingerprint, const uint64_t* base, size_t n, uint32_t end, std::vector<uint64_t>* out) const override;
  bool has_id_index() const override { return has_id_index_; }
  bool index_ids() override;
  IdPairs find(const uint64_t* ids, size_t n, uint32_t end, const IdPairs& other, const Pause& pause) const override;
  void export_state(uint32_t end, Export* out, const Pause& pause) const override;

 private:
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
  static constexpr uint64_t kLookUpWork = 32;  // of looking up one fingerprint
  static constexpr unsigned kGroup = 16;  // rows or queries whose memory is asked for together
  // IdPairs of an entry up to which they are walked; those of entries with more are all in pair_slots_.
  static constexpr uint32_t kWalk = 4;
  static constexpr uint32_t kMostPairs = (uint32_t{1} << 30) - 1;  // of an entry, which counts them in 30 bits

  using Places = typename NearIndex<Row>::Places;

  uint64_t mix(uint64_t x) const;
  template <unsigned Words>
  uint64_t mix(const Wide<Words>& x) const {
    uint64_t sum = 0;
    for (unsigned i = 0; i < Words; ++i) sum = mix(sum ^ x.word[i]);
    return sum;
  }
  uint64_t pair_hash(uint32_t entry, uint64_t id) const { return mix(id + entry * uint64_t{0x9E3779B97F4A7C15}); }
  uint32_t find_entry(uint64_t hash, const Row& fingerprint) const;
  void prefetch_entry(uint64_t hash) const;
  uint32_t find_pair(uint32_t entry, uint64_t id) const;
  const Event* newest(const Event& event, uint32_t end) const;
  const Event* newest_absence(const Entry& entry, uint32_t end) const;
  Presence state(const Row& fingerprint, uint32_t end) const;
  bool is_present(const Row& fingerprint, uint32_t end) const;
  template <class Done>
  bool probe_each(const Row* queries, size_t n, unsigned radius, uint32_t end, Sink* sink, const Pause& pause, const Done& done) const;
  void keep_present(uint64_t from, uint32_t end, Sink* sink) const;
  template <class Visit>
  bool scan_parts(size_t n, const Pause& pause, const Visit& visit) const;
  template <class Bound, class Emit>
  bool scan_some(const Row* queries, size_t first, size_t n, uint32_t end, const Bound& bound, const Emit& emit) const;
  Presence pair_state(const Row& fingerprint, uint64_t id, uint32_t end) const;
  Presence presence_of(const Pair* pair, const Event* absence, uint32_t end) const;

  void prefetch(const Row* fingerprints, const uint64_t* ids, const uint8_t* in_base, size_t n, Places* places,
                uint64_t* hashes) const;
  bool reserve_entries(uint64_t more);
  uint32_t put_entry(uint64_t hash, const Row& fingerprint, bool in_base, const Places& at);
  uint32_t put_pair(uint32_t entry, uint64_t id);
  bool reserve_id();
  void put_id(uint32_t pair);
  void put_pair_slot(uint32_t pair);
  bool record(Event* event, bool holds);
  Applied probe_insert_one(const Kernels& k, const Asked& rows, size_t q, const Places& at, Sink* sink,
                           uint8_t* inserted);
  Applied change(Change kind, uint64_t hash, const Row& fingerprint, uint64_t id, bool in_base, const Places& at);
  void undo(uint32_t serial, uint64_t pair_count, uint64_t history_count);

  // The changes of one call. Those that were not committed are taken back at its end, however it comes.
  class Attempt {
   public:
    explicit Attempt(DeltaOf* delta)
        : delta_(delta), serial_(delta->serial_), pair_count_(delta->pairs_.size()), history_count_(delta->history_.size()) {}
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;
    ~Attempt() {
      if (delta_) delta_->undo(serial_, pair_count_, history_count_);
    }
    // Makes the changes so far, if there are any, those of the version, for which there is room.
    void commit(uint32_t version);

   private:
    DeltaOf* delta_;
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
  // By id: the newest pair that has it, and for each pair the one before with its id. Made when an id is looked up for the first
  // time: most stores are never asked.
  Slots id_slots_;
  Column<uint32_t> next_of_id_;
  bool has_id_index_ = false;
  bool is_loading_ = false;
  uint32_t serial_ = 0;
  uint64_t removals_ = 0;
  const uint64_t seed_ = random_word();  // fingerprints may be chosen to collide
};

template <class Row>
inline uint64_t DeltaOf<Row>::mix(uint64_t x) const {
  x = (x ^ seed_) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EB;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

template <class Row>
inline uint32_t DeltaOf<Row>::find_entry(uint64_t hash, const Row& fingerprint) const {
  return entry_slots_.find(hash, [&](uint32_t e) { return entries_[e].fingerprint == fingerprint; });
}

// The second step after entry_slots_.prefetch().
template <class Row>
inline void DeltaOf<Row>::prefetch_entry(uint64_t hash) const {
  const uint32_t entry = entry_slots_.peek(hash);
  if (entry != kNone) fetch_line(&entries_[entry]);
}

template <class Row>
inline uint32_t DeltaOf<Row>::find_pair(uint32_t entry, uint64_t id) const {
  if (entries_[entry].pair_count > kWalk)
    return pair_slots_.find(pair_hash(entry, id), [&](uint32_t p) { return pairs_[p].entry == entry && pairs_[p].id == id; });
  uint32_t p = entries_[entry].pairs;
  while (p != kNone && pairs_[p].id != id) p = pairs_[p].next_of_entry;
  return p;
}

// The newest event before end, if any.
template <class Row>
inline const typename DeltaOf<Row>::Event* DeltaOf<Row>::newest(const Event& event, uint32_t end) const {
  const Event* e = &event;
  while (e->serial >= end) {
    if (!e->older) return nullptr;
    e = &history_[e->older - 1];
  }
  return e;
}

// Few steps: presence and absence take turns.
template <class Row>
inline const typename DeltaOf<Row>::Event* DeltaOf<Row>::newest_absence(const Entry& entry, uint32_t end) const {
  const Event* e = newest(entry.presence, end);
  while (e && e->holds) e = e->older ? &history_[e->older - 1] : nullptr;
  return e;
}

template <class Row>
inline Presence DeltaOf<Row>::presence_of(const Pair* pair, const Event* absence, uint32_t end) const {
  const Event* e = pair ? newest(pair->presence, end) : nullptr;
  if (e && (!absence || e->serial > absence->serial)) return e->holds ? Presence::present : Presence::absent;
  return absence ? Presence::absent : Presence::unknown;
}

}  // namespace fpstore
