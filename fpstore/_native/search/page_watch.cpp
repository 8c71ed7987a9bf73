// Learning from page faults whether a table is in the page cache.
#include "search/request.hpp"

#include <algorithm>

namespace fpstore {

PageWatch::Plan PageWatch::plan(unsigned lookups) {
  for (auto* left : {&ahead_, &trusted_}) {
    const uint32_t n = left->load(std::memory_order_relaxed);
    if (!n) continue;
    left->store(n > lookups ? n - lookups : 0, std::memory_order_relaxed);
    return left == &ahead_ ? Plan::fetch : Plan::trust;
  }
  return Plan::check;
}

// Checks are soon rare where nothing had to be waited for.
void PageWatch::note(bool waited) {
  const uint32_t trust =
      waited
          ? 0
          : std::min(std::max(2 * trust_.load(std::memory_order_relaxed), kLookups / 64), kLookups);
  trust_.store(trust, std::memory_order_relaxed);
  trusted_.store(trust, std::memory_order_relaxed);
  ahead_.store(waited ? kLookups : 0, std::memory_order_relaxed);
}

}  // namespace fpstore
