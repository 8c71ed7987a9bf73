// Groups around representatives that are alike, where a distance alone does not decide.
#pragma once
#include "format/xxh64.hpp"
#include "pairs/join.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// The representatives of one set. When there are more than kMaxScanned, a row is compared with the
// latest of these, and with the first that equals it.
template <class Row>
class Representatives {
 public:
  Representatives(const AlikeGrouping& grouping, uint64_t rows)
      : grouping_(grouping), kept_(reinterpret_cast<Row*>(grouping.kept)) {
    if (rows <= kMaxScanned) return;
    for (slots_ = 1; slots_ < 2 * rows;) slots_ *= 2;
    memset(grouping.firsts, 0xFF, 8 * slots_);
  }

  void add(const Row& row, uint64_t place) {
    grouping_.sets.waiting[count_] = place;
    if (slots_) {
      uint64_t& slot = slot_of(row);
      if (slot == UINT64_MAX) slot = count_;
    }
    kept_[count_++] = row;
  }

  // Writes the places of those within the radius, the nearest first, of equally near ones the
  // earliest; no more than are compared.
  unsigned nearest(const Row& row, uint32_t* out) {
    const uint64_t first = count_ > kMaxScanned ? count_ - kMaxScanned : 0;
    unsigned equal = 0;
    if (first) {
      const uint64_t slot = slot_of(row);
      if (slot < first) out[equal++] = static_cast<uint32_t>(slot);
    }
    uint32_t starts[kMaxWidth + 2] = {};
    uint64_t near = 0;
    for (uint64_t i = first; i < count_; ++i) {
      const unsigned distance = ones(row ^ kept_[i]);
      grouping_.near[near] = static_cast<uint32_t>(i);
      grouping_.distances[near] = static_cast<uint16_t>(distance);
      near += distance <= grouping_.sets.radius;
    }
    for (uint64_t i = 0; i < near; ++i) ++starts[grouping_.distances[i] + 1];
    starts[0] = equal;
    for (unsigned d = 1; d < kMaxWidth + 2; ++d) starts[d] += starts[d - 1];
    for (uint64_t i = 0; i < near; ++i) {
      const uint32_t rank = starts[grouping_.distances[i]]++;
      if (rank < grouping_.most) out[rank] = grouping_.near[i];
    }
    return near + equal < grouping_.most ? static_cast<unsigned>(near + equal) : grouping_.most;
  }

  uint64_t scanned() const { return count_ < kMaxScanned ? count_ : kMaxScanned; }
  uint64_t place(uint32_t number) const { return grouping_.sets.waiting[number]; }

 private:
  uint64_t& slot_of(const Row& row) {
    uint64_t hash = grouping_.seed;
    for (unsigned w = 0; w < sizeof(Row) / 8; ++w)
      hash = xxh::avalanche(hash ^ word_of(row, w)) + w;
    uint64_t* const slots = grouping_.firsts;
    for (uint64_t at = hash & (slots_ - 1);; at = (at + 1) & (slots_ - 1))
      if (slots[at] == UINT64_MAX || is_zero(kept_[slots[at]] ^ row)) return slots[at];
  }

  const AlikeGrouping& grouping_;
  Row* kept_;
  uint64_t count_ = 0, slots_ = 0;
};

// In the order of a set, a row goes to the nearest representative within the radius that is alike,
// or becomes one itself. The work for a row has a bound: up to kMaxScanned distances, and up to
// `most` comparisons.
template <unsigned W>
bool group_alike(const AlikeGrouping& grouping, uint64_t* representatives, GroupWork* work,
                 Stopper* stop) {
  using Row = typename RowOf<W>::type;
  const Grouping& sets = grouping.sets;
  const Row* const all = rows<Row>(sets.rows);
  Pace pace{stop};
  uint32_t near[kMaxAlike];
  for (uint64_t s = 0; s < sets.count; ++s) {
    Representatives<Row> kept(grouping, sets.lims[s + 1] - sets.lims[s]);
    for (uint64_t place = sets.lims[s]; place < sets.lims[s + 1]; ++place) {
      work->distances += kept.scanned();
      if (pace.stopped(kept.scanned())) return false;
      const unsigned count = kept.nearest(all[place], near);
      representatives[place] = place;
      for (unsigned i = 0; i < count && representatives[place] == place; ++i) {
        const uint64_t other = kept.place(near[i]), before = work->compared;
        if (grouping.alike(grouping.of, place, other, &work->compared))
          representatives[place] = other;
        if (pace.stopped(work->compared - before)) return false;
      }
      if (representatives[place] == place) kept.add(all[place], place);
    }
  }
  return true;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
