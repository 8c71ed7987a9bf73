// A probe of one fingerprint, from its row to the matches with their ids.
#pragma once
#include <memory>
#include <vector>

#include "format/sealed_file.hpp"
#include "search/prober.hpp"

namespace fpstore {

// What a single probe writes: the matches by distance and fingerprint, and what it takes to find
// them.
struct SingleMatches {
  std::vector<uint64_t> fingerprints;  // rows
  std::vector<uint16_t> distances;
  std::vector<uint64_t> ids, id_ends;  // of all matches, and where those of each end

  SingleMatches() = default;
  ~SingleMatches() { release(&sink); }
  SingleMatches(const SingleMatches&) = delete;
  SingleMatches& operator=(const SingleMatches&) = delete;

  unsigned words = 0;  // of a row of the matches that the sink has room for
  Sink sink;
  FoundPlaces found_at;
  std::vector<EntryPlace> places;
  std::vector<uint64_t> rows, blocks;  // of those that are to be located
  std::vector<uint32_t> ranks;
  std::vector<uint8_t> record;
};

// The SingleMatches of the thread, which keeps them for the next probe unless they have become
// large. The handler of a signal that comes meanwhile may probe, too: it gets others.
class ThreadMatches {
 public:
  ThreadMatches();
  ~ThreadMatches();
  ThreadMatches(const ThreadMatches&) = delete;
  ThreadMatches& operator=(const ThreadMatches&) = delete;
  SingleMatches* get() { return matches_.get(); }

 private:
  std::unique_ptr<SingleMatches> matches_;
};

// Answers one query after the other. Prober, identity table and ids outlive it; threads may share
// it.
class SingleProber {
 public:
  SingleProber(const AnyProber* prober, const AnyTable* identity, const SealedFile* ids,
               unsigned radius);

  const AnyProber& prober() const { return *prober_; }
  unsigned words() const { return identity_->words(); }
  unsigned width() const { return identity_->width; }
  // False if the ids of a match cannot be found in the file as it should be. Throws the fault of
  // a table.
  bool probe(const uint64_t* row, Stopper* stop, SingleMatches* out) const;

 private:
  unsigned found_words() const { return prober_->finds_rows() ? 1 : words(); }
  void search(const uint64_t* row, Stopper* stop, SingleMatches* out) const;
  Status order(SingleMatches* out, Stopper* stop) const;
  Status read_rows(SingleMatches* out, Fault* fault) const;
  Status locate(SingleMatches* out, Stopper* stop, Fault* fault) const;
  void fetch(uint64_t leading) const;
  bool find_ids(SingleMatches* out) const;

  const AnyProber* prober_;
  const AnyTable* identity_;
  const Table* blocks_;  // the identity table, if it is one of blocks
  const SealedFile* ids_;
  unsigned radius_;
};

}  // namespace fpstore
