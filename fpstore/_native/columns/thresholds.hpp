// Thresholds for one query (Qin et al., GPH, ICDE 2018): those that meet the fewest entries, by
// what the directories say.
#pragma once
#include "columns/masks.hpp"
#include "columns/request.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kCounted =
    3;  // larger thresholds are never counted in the directory, only estimated
constexpr unsigned kMaxRadius = 256;  // larger radii are treated as this one

// costs[t + 1] of looking up in all buckets that differ from the query's in at most t bits, for t
// from -1 to most: look-ups, and the entries that they meet. Up to `counted` bits the directory
// tells; what follows is estimated.
inline Status count_costs(const ColumnView& t, uint32_t bucket, unsigned counted, unsigned most,
                          float* costs, Fault* fault) {
  FPSTORE_TRY(verify(t.pages, t.directory_at, 4 * (bucket_count(t) + 1), fault));
  const uint32_t end = uint32_t{1} << t.bucket_bits;
  costs[0] = 0;
  float step = 0, variants = 1;
  for (unsigned f = 0; f <= most; ++f) {
    if (f > t.bucket_bits) {
      step = 0;
    } else if (f <= counted) {
      uint64_t met = 0;
      for (uint32_t mask = first_mask(f); mask < end; mask = next_mask(mask, end)) {
        const uint64_t both = load64(t.directory + 4 * uint64_t{bucket ^ mask});
        met += (both >> 32) - (both & UINT32_MAX);
      }
      step = static_cast<float>(met) + static_cast<float>(kLookupEntries) * variants;
    } else {
      step *= static_cast<float>(t.bucket_bits + 1 - f) / static_cast<float>(f);
    }
    costs[f + 1] = costs[f] + step;
    variants *= static_cast<float>(t.bucket_bits - (f < t.bucket_bits ? f : t.bucket_bits)) /
                static_cast<float>(f + 1);
  }
  return Status::ok;
}

// Room for the choice: which allowance, t + 1, the last of some tables has in the cheapest way to
// share out a number of them.
struct Sharing {
  uint16_t choice[kMaxRing][kMaxRadius + 2];
  float cheapest[2][kMaxRadius + 2];
  float costs[kMaxRadius + 2];
};

// The thresholds of one query; buckets are those of the query in each table.
inline Status choose_thresholds(const Ring& ring, const uint32_t* buckets, unsigned radius,
                                Sharing* s, int16_t* thresholds, Fault* fault) {
  const unsigned wanted = (radius < kMaxRadius ? radius : kMaxRadius) + 1;
  unsigned most = wanted / ring.count + kSpare;
  if (most > wanted) most = wanted;
  const unsigned even = wanted / ring.count, counted = even < 1          ? 1
                                                       : even < kCounted ? even
                                                                         : kCounted;
  for (unsigned i = 0; i < ring.count; ++i) {
    const Status status =
        count_costs(*ring.tables[i].table, buckets[i], counted, most - 1, s->costs, fault);
    if (FPSTORE_UNLIKELY(status != Status::ok)) {
      fault->table = i;
      return status;
    }
    const float* const before = s->cheapest[i & 1];
    float* const after = s->cheapest[(i + 1) & 1];
    for (unsigned sum = 0; sum <= wanted; ++sum) {
      after[sum] = 3e38f;
      s->choice[i][sum] = 0;
      for (unsigned a = 0; a <= (sum < most ? sum : most); ++a) {
        const float left = i ? before[sum - a] : sum == a ? 0 : 3e38f;
        if (left + s->costs[a] < after[sum]) {
          after[sum] = left + s->costs[a];
          s->choice[i][sum] = static_cast<uint16_t>(a);
        }
      }
    }
  }
  unsigned left = wanted;
  for (unsigned i = ring.count; i-- > 0;) {
    const unsigned a = s->choice[i][left];
    thresholds[i] = static_cast<int16_t>(static_cast<int>(a) - 1);
    left -= a;
  }
  return Status::ok;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
