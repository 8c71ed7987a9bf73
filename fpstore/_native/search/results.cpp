#include "search/results.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "search/shared_tasks.hpp"

namespace fpstore {

static bool resize(Sink* sink, size_t bytes, uint64_t capacity) {
  void* const p = std::realloc(sink->matches, bytes);
  if (!p) return false;
  sink->matches = p;
  sink->capacity = capacity;
  return true;
}

bool grow(Sink* sink, size_t match_bytes) {
  uint64_t capacity = sink->capacity ? sink->capacity * 2 : 256;
  if (capacity > sink->limit) capacity = sink->limit;
  if (capacity <= sink->capacity) return false;
  return resize(sink, capacity * match_bytes, capacity);
}

void release(Sink* sink) {
  std::free(sink->matches);
  *sink = Sink{};
}

namespace {

#ifdef FPSTORE_SMALL
constexpr unsigned kPartBits = 1;
constexpr uint64_t kThreadMatches = 1;
#else
constexpr unsigned kPartBits = 13;
constexpr uint64_t kThreadMatches = 1 << 14;  // fewer are not worth another thread
#endif
constexpr uint64_t kPartQueries =
    uint64_t{1}
    << kPartBits;  // ordered together: with a few matches each they fit the second-level cache

// Orders the matches of some queries.
template <class Row, class Distance>
class PartOrder {
 public:
  PartOrder(int64_t* lims, Row* fingerprints, Distance* distances, Stopper* stop)
      : lims_(lims), fingerprints_(fingerprints), distances_(distances), steps_(stop) {}

  // found are the matches of queries [first, end); before is the number of matches of the queries
  // before first.
  void run(const Match<Row>* found, uint64_t count, uint64_t first, uint64_t end, uint64_t before) {
    const uint64_t queries = end - first;
    ends_.assign(queries + 1, 0);
    if (ordered_.size() < count) ordered_.resize(count);
    for (uint64_t i = 0; i < count; ++i, steps_.tick()) ++ends_[found[i].query - first + 1];
    for (uint64_t q = 0; q < queries; ++q) {
      lims_[first + q] = static_cast<int64_t>(before + ends_[q]);
      ends_[q + 1] += ends_[q];
    }
    for (uint64_t i = 0; i < count; ++i, steps_.tick())
      ordered_[ends_[found[i].query - first]++] = found[i];
    for (uint64_t q = 0, start = 0; q < queries; start = ends_[q++])
      if (ends_[q] - start > 1) sort(start, ends_[q]);
    for (uint64_t i = 0; i < count; ++i, steps_.tick()) {
      fingerprints_[before + i] = ordered_[i].fingerprint;
      distances_[before + i] = static_cast<Distance>(ordered_[i].distance);
    }
  }

 private:
  void sort(uint64_t start, uint64_t end) {
    std::sort(ordered_.data() + start, ordered_.data() + end,
              [&](const Match<Row>& a, const Match<Row>& b) {
                steps_.tick();
                return a.distance != b.distance ? a.distance < b.distance
                                                : a.fingerprint < b.fingerprint;
              });
  }

  int64_t* const lims_;
  Row* const fingerprints_;
  Distance* const distances_;
  Steps steps_;
  std::vector<uint64_t> ends_;
  std::vector<Match<Row>> ordered_;
};

// Shares out count tasks to threads. Each thread makes a work with its stopper, and calls
// work(number) for each task.
template <class MakeWork>
void share(size_t tasks, unsigned threads, Stopper* stop, MakeWork make_work) {
  SharedTasks shared(tasks);
  std::atomic<bool> no_memory{false};
  shared.run(threads, stop, [&](Stopper* own) {
    try {
      auto work = make_work(own);
      for (size_t i; shared.take(&i);) work(i);
    } catch (const std::bad_alloc&) {
      no_memory.store(true);
      shared.end();
    } catch (const Interrupted&) {
      shared.end();
    }
  });
  if (no_memory.load()) throw std::bad_alloc();
  if (stop && stop->ended) throw Interrupted();
}

// Orders matches part by part of the queries.
template <class Row, class Distance>
void order_parts(const Sink& sink, uint64_t query_count, int64_t* lims, Row* fingerprints,
                 Distance* distances, unsigned threads, Stopper* stop) {
  const Match<Row>* const found = matches<Row>(sink);
  const uint64_t parts = (query_count + kPartQueries - 1) >> kPartBits;
  const uint64_t slices =
      threads > 1 ? 4 * threads
                  : 1;  // of the matches, which threads count and then bring to their parts
  std::vector<std::vector<uint64_t>> at(
      slices, std::vector<uint64_t>(parts));  // counts, then where the next match goes
  const auto each = [&](auto step) {
    return [&, step](Stopper* own) {
      return [&, step, steps = Steps(own)](size_t slice) mutable {
        for (uint64_t i = sink.count * slice / slices; i < sink.count * (slice + 1) / slices;
             ++i, steps.tick())
          step(slice, found[i]);
      };
    };
  };
  share(slices, threads, stop,
        each([&](size_t slice, const Match<Row>& m) { ++at[slice][m.query >> kPartBits]; }));
  std::vector<uint64_t> starts(parts + 1);
  uint64_t sum = 0;
  for (uint64_t p = 0; p < parts; ++p) {
    starts[p] = sum;
    for (std::vector<uint64_t>& counts : at) sum += std::exchange(counts[p], sum);
  }
  starts[parts] = sum;
  const std::unique_ptr<Match<Row>[]> by_part(new Match<Row>[sink.count]);
  share(slices, threads, stop, each([&](size_t slice, const Match<Row>& m) {
          by_part[at[slice][m.query >> kPartBits]++] = m;
        }));
  share(parts, threads, stop, [&](Stopper* own) {
    return [&, order =
                   PartOrder<Row, Distance>(lims, fingerprints, distances, own)](size_t p) mutable {
      const uint64_t first = p << kPartBits, end = std::min(query_count, first + kPartQueries);
      order.run(by_part.get() + starts[p], starts[p + 1] - starts[p], first, end, starts[p]);
    };
  });
}

template <class Row, class Distance>
Status order_rows(const Sink& sink, uint64_t query_count, int64_t* lims, Row* fingerprints,
                  Distance* distances, unsigned threads, Stopper* stop) {
  lims[query_count] = static_cast<int64_t>(sink.count);
  threads = static_cast<unsigned>(
      std::clamp<uint64_t>(sink.count / kThreadMatches, 1, std::max(threads, 1U)));
  try {
    if (query_count > kPartQueries) {
      order_parts(sink, query_count, lims, fingerprints, distances, threads, stop);
    } else {
      PartOrder<Row, Distance> order(lims, fingerprints, distances, stop);
      order.run(matches<Row>(sink), sink.count, 0, query_count, 0);
    }
    return Status::ok;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  } catch (const Interrupted&) {
    return Status::interrupted;
  }
}

size_t match_bytes(unsigned words) {
  return with_row(words, [](auto row) { return sizeof(Match<decltype(row)>); });
}

}  // namespace

void shift_queries(Sink* sink, unsigned words, uint64_t first, uint32_t by) {
  with_row(words, [&](auto row) {
    for (uint64_t i = first; i < sink->count; ++i) matches<decltype(row)>(*sink)[i].query += by;
  });
}

bool reserve(Sink* sink, unsigned words, uint64_t count) {
  return count <= sink->capacity || resize(sink, count * match_bytes(words), count);
}

void copy_matches(const Sink& from, unsigned words, uint32_t by, uint64_t place, const Sink& to) {
  with_row(words, [&](auto row) {
    const Match<decltype(row)>* const in = matches<decltype(row)>(from);
    Match<decltype(row)>* const out = matches<decltype(row)>(to) + place;
    for (uint64_t i = 0; i < from.count; ++i) {
      out[i] = in[i];
      out[i].query += by;
    }
  });
}

Status order_matches(const Sink& sink, unsigned words, unsigned distance_bytes,
                     uint64_t query_count, int64_t* lims, uint64_t* fingerprints, void* distances,
                     unsigned threads, Stopper* stop) {
  return with_row(words, [&](auto row) {
    auto* const out = rows<decltype(row)>(fingerprints);
    if (distance_bytes == 1)
      return order_rows(sink, query_count, lims, out, static_cast<uint8_t*>(distances), threads,
                        stop);
    return order_rows(sink, query_count, lims, out, static_cast<uint16_t*>(distances), threads,
                      stop);
  });
}

}  // namespace fpstore
