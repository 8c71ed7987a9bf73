// Searches for the pairs or the links of one table, in batches.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "format/errors.hpp"
#include "format/span.hpp"
#include "pairs/request.hpp"

namespace fpstore {

// Held while an object works: a second thread is refused.
struct InUse {
  std::atomic<bool>& busy;
  explicit InUse(std::atomic<bool>& flag) : busy(flag) {
    need(!busy.exchange(true), "another thread is using it");
  }
  ~InUse() { busy = false; }
};

// Throw unless the starts ascend, and unless they end at the number of rows.
void check_ascent(Span<const uint64_t> starts);
void check_starts(Span<const uint64_t> starts, uint64_t rows);
uint64_t largest_bucket(Span<const uint64_t> starts, uint64_t first, uint64_t end);

// Permuted rows in the order of their buckets, with what index_buckets() wrote. Where buckets
// begin, or what a tag is, may be wrong: then pairs are missing, and nothing else is read or
// written. It outlives a search.
template <class Word, class Tag>
struct IndexedRows {
  Word* rows;
  uint64_t count;
  unsigned words;
  Span<const uint64_t> starts;
  Span<Tag> tags;
};
using JoinedRows = IndexedRows<const uint64_t, const uint16_t>;
using LinkedRows = IndexedRows<uint64_t, uint16_t>;  // rows and tags change places

// How pairs meet in a table of a join and in the tables before it; only the first of them reports a
// pair. Searches of the table refer to it.
struct JoinRules {
  // The permutation is that of the last table. The other arguments have a row or a number for each
  // table. Throws if they do not fit together.
  JoinRules(Span<const uint8_t> permutation, Span<const uint64_t> bucket_masks,
            Span<const uint64_t> tag_masks, const std::vector<unsigned>& flips,
            const std::vector<unsigned>& both, unsigned tag_bits, unsigned radius);

  unsigned words;  // of a row
  unsigned radius;
  uint16_t tag_mask;
  Permutation inverse;
  std::vector<TableRule> tables;
};

// Finds pairs in batches, until there are no more. One thread at a time.
class PairSearch {
 public:
  virtual ~PairSearch() = default;
  unsigned words() const { return words_; }
  bool done() const { return done_; }
  // Adds pairs while there is room, which is for kTagsAtOnce at least. Throws Interrupted where it
  // is stopped: what it had found is lost.
  void more(PairSink* sink, Stopper* stop);

 protected:
  explicit PairSearch(unsigned words) : words_(words) {}
  virtual bool add(PairSink* sink, Stopper* stop) = 0;

  unsigned words_;

 private:
  bool done_ = false, stopped_ = false;
  std::atomic<bool> busy_{false};
};

// The pairs of one table, or of some of its buckets: of a set, or of that and an opposite one.
class PairJoin : public PairSearch {
 public:
  PairJoin(const JoinedRows& side, const JoinRules& rules, uint64_t first, uint64_t end,
           const std::optional<JoinedRows>& opposite);

 private:
  bool add(PairSink* sink, Stopper* stop) override;

  std::unique_ptr<uint64_t[]> places_, group_starts_;  // where a large bucket is split
  std::unique_ptr<uint16_t[]> group_tags_;
  Join join_{};
  JoinPlace place_{};
};

// Links the rows of a set that are near each other in one table.
class Linking : public PairSearch {
 public:
  Linking(const LinkedRows& side, const JoinRules& rules);

 private:
  bool add(PairSink* sink, Stopper* stop) override;

  std::unique_ptr<uint64_t[]> live_, stack_, moved_, group_starts_;
  std::unique_ptr<uint16_t[]> moved_tags_;
  LinkTable links_{};
  LinkPlace place_{};
};

// Permuted rows in parts by their leading bits: part p has the rows [starts[p], starts[p + 1]). In
// a part they have any order, or are in the order of their buckets.
struct PartedRows {
  const uint64_t* rows;
  uint64_t count;
  unsigned words;
  Span<const uint64_t> starts;
  bool ordered;
};

// The pairs or links of a set, or the pairs of two sets, in parts of a table that flips no bit of
// the bucket. Each part is put in the order of its buckets, and searched while the cache has it.
class PartSearch : public PairSearch {
 public:
  // The parts are those of the leading part_bits bits from first on. The rules outlive the search.
  PartSearch(std::vector<PartedRows> sides, const JoinRules& rules, unsigned bucket_bits,
             unsigned part_bits, bool linked);

 private:
  // A part of a side in the order of its buckets.
  struct Part {
    std::unique_ptr<uint64_t[]> rows;
    std::unique_ptr<uint16_t[]> tags;
    std::unique_ptr<uint64_t[]> starts;
    const uint64_t* sorted;
    uint64_t count;
  };
  bool add(PairSink* sink, Stopper* stop) override;
  bool sort(Stopper* stop);
  std::unique_ptr<PairSearch> search() const;
  template <class Word, class Tag>
  IndexedRows<Word, Tag> indexed(size_t side, Word* rows) const;

  std::vector<PartedRows> sides_;
  const JoinRules& rules_;
  unsigned part_bits_, bits_;  // bits_: of the bucket, behind the bits of the part
  bool linked_;
  std::vector<Part> parts_;
  std::unique_ptr<PairSearch> search_;
  size_t part_ = 0;
};

}  // namespace fpstore
