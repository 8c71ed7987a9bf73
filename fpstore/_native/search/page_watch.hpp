// Whether look-ups ask for pages ahead.
#pragma once
#include <atomic>

#include "format/common.hpp"

namespace fpstore {

// Whether the pages of look-ups are in the page cache, learnt from the faults of the threads that look up. Pages are asked for
// ahead only after a look-up had to wait for one, and for a fixed number of look-ups; how long anything took plays no part.
class PageWatch {
 public:
  enum class Plan { trust, check, fetch };
  // What to do for the next look-ups; of several threads one may miss what another notes, which only shifts the next check.
  Plan plan(unsigned lookups);
  // What a check came to.
  void note(bool waited);

 private:
  static constexpr uint32_t kLookups = 1 << 12;
  std::atomic<uint32_t> ahead_{0};    // look-ups that still ask ahead
  std::atomic<uint32_t> trusted_{0};  // look-ups before the next check
  std::atomic<uint32_t> trust_{0};    // look-ups between the last two checks
};

}  // namespace fpstore
