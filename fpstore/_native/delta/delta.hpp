// The changes on top of immutable tables, in memory and by version: which fingerprints are present
// with which ids. Knows nothing of Python.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "delta/near_index.hpp"

namespace fpstore {

// A reader-writer lock without starvation: everybody passes gate_ first, and a writer holds it
// until it unlocks.
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

// Queries, each with the id under which it may be added. matched: 1 counts as a match, 2 is never
// added.
struct ConditionalInserts {
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

// Fingerprints are rows, in arrays of words. Each change has a serial number, and a reader sees
// those below the end of its version. The caller holds the gate: shared for const members, alone
// for the others. A pause of a reader may give it up meanwhile: what is visible at a version stays
// as it is. Members may throw std::bad_alloc, and then have changed nothing.
class Delta {
 public:
  virtual ~Delta() = default;

  mutable Gate gate;

  virtual unsigned width() const = 0;  // bits of a fingerprint
  virtual uint64_t entries() const = 0;
  virtual uint64_t operations() const = 0;
  virtual uint64_t removals() const = 0;
  virtual uint64_t bytes() const = 0;

  // Versions do not descend; all changes are taken or none. A delta that is loading does not index
  // fingerprints: index() does, all at once, before anything is probed.
  virtual Applied apply(const Changes& rows, uint32_t version) = 0;
  // An empty delta begins to load, or one that does makes room for more changes. These two are
  // false when memory runs out.
  virtual bool load(uint64_t changes) = 0;
  virtual bool index(const Pause& pause) = 0;
  virtual bool is_loading() const = 0;

  // What probe() finds now goes to the sink; queries without a match (or all) are added. Only the
  // first *n are taken, and *n is set to them, when those are a good deal of work. All is taken
  // back when deliver, which is called at the end, throws.
  virtual Applied probe_insert(const ConditionalInserts& rows, size_t* n, uint32_t version,
                               Sink* sink, uint8_t* inserted,
                               const std::function<void()>& deliver) = 0;

  // The first serial number that a reader of this version does not see.
  virtual uint32_t end_of(uint32_t version) const = 0;

  // Fingerprints not in the base, present before end, within the radius. False when memory runs
  // out.
  virtual bool probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
                     const Pause& pause) const = 0;
  virtual bool scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
                    const Pause& pause) const = 0;
  // All that have the first bits of a query, at most 64.
  virtual bool share(const uint64_t* queries, size_t n, unsigned bits, uint32_t end, Sink* sink,
                     const Pause& pause) const = 0;
  // As the first two, but keeps the nearest of each query within the radius that start_nearest()
  // was given.
  virtual bool nearest(const uint64_t* queries, size_t n, unsigned radius, uint32_t end,
                       Nearest* kept, const Pause& pause) const = 0;

  virtual void states(const uint64_t* fingerprints, size_t n, uint32_t end, uint8_t* out,
                      const Pause& pause) const = 0;
  virtual void pair_states(const uint64_t* fingerprints, const uint64_t* ids, size_t n,
                           uint32_t end, uint8_t* out, const Pause& pause) const = 0;
  // Appends the ids of a fingerprint whose ids in the base are these, ascending.
  virtual void ids(const uint64_t* fingerprint, const uint64_t* base, size_t n, uint32_t end,
                   std::vector<uint64_t>* out) const = 0;
  // Whether find() may be called; the first who wants to calls index_ids(), which is false when
  // memory runs out.
  virtual bool has_id_index() const = 0;
  virtual bool index_ids() = 0;
  // The pairs that were added, have one of the ids and are present, by fingerprint and id, each
  // once.
  virtual IdPairs find(const uint64_t* ids, size_t n, uint32_t end, const Pause& pause) const = 0;
  virtual void export_state(uint32_t end, Export* out, const Pause& pause) const = 0;
};

// An empty delta of fingerprints of a width, whose bits all have a number in bits.
std::unique_ptr<Delta> make_delta(unsigned width, unsigned radius, const uint8_t* bits);

}  // namespace fpstore
