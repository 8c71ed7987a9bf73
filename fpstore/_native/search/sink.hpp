// Where matches go.
#pragma once
#include "format/common.hpp"

namespace fpstore {

struct Match {
  uint64_t fingerprint;
  uint32_t query;
  uint32_t distance;
};

// Grows by doubling, to limit at most, through grow(), which is compiled once, outside the per-instruction-set files.
struct Sink {
  Match* matches = nullptr;
  uint64_t count = 0;
  uint64_t capacity = 0;
  uint64_t limit = UINT64_MAX;
};
bool grow(Sink* sink);
void release(Sink* sink);

}  // namespace fpstore
