// Probes of column tables: how the look-ups of queries go through their stages, many at a time.
#pragma once
#include "columns/masks.hpp"
#include "columns/near_tags.hpp"
#include "columns/thresholds.hpp"
#include "isa/kernels.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

constexpr unsigned kQueryBits =
    20;  // the low bits of a query's head, which has no more than 44 bits, tell which query it is
constexpr size_t kTogether =
    size_t{1} << kQueryBits;  // queries that go through a table before the next one is asked
static_assert(kMaxBucketBits + kTagBits + kQueryBits <= 64,
              "bucket and tag stand above the number of the query");

// One bucket of a table that a query is looked up in.
struct Lookup {
  uint64_t start;
  uint64_t end;
  uint32_t bucket;
  uint32_t query;
  uint16_t tag;
  uint16_t table;
  uint8_t limit;  // bits in which a tag may differ
};

// Entries of a look-up whose tags are near, out of kTagsAtOnce that stand together.
struct Run {
  uint64_t head;   // of all their keys, the bucket
  uint64_t first;  // the place of the first entry that was compared
  unsigned count;
  uint32_t query;
  uint16_t table;
  uint16_t near[kTagsAtOnce];  // places behind the first, ascending
};

// A reference whose row has been asked for.
struct Named {
  uint64_t head;  // its bucket and tag, as in its key
  uint64_t row;
  uint64_t place;
  uint32_t query;
  uint16_t table;
};

// Places that go round. Each stage has a counter of its own, and none overtakes the one before it.
constexpr unsigned kLookups = 64, kOpenBehind = 12, kFilterBehind = 28;
constexpr unsigned kRuns = 16, kReadBehind = 8;
constexpr unsigned kNamed = 64, kFinishBehind = 24;
constexpr uint64_t kChoiceWork = 64;  // of choosing thresholds, in comparisons of a tag
static_assert(kOpenBehind < kFilterBehind && kFilterBehind < kLookups,
              "the stages follow each other around the ring");
static_assert(kReadBehind < kRuns && kFinishBehind < kNamed,
              "the stages follow each other around the ring");

struct ColumnWork {
  Lookup lookups[kLookups];
  Run runs[kRuns];
  Named named[kNamed];
  uint32_t buckets[kMaxRing];
  Sharing sharing;
};

// A probe under way. With W = 1 the entries are copies, with more words references to rows. Queries
// go through one table after the other, in the order of its buckets if they are many: neighbours
// then meet the same tags, which the cache has.
template <class Isa, unsigned W>
struct ColumnFlow {
  const Ring& ring;
  const Queries& queries;
  const ColumnOptions& options;
  Sink* sink;
  ColumnCounters* counters;
  Fault* fault;
  ColumnWork* work;
  uint64_t* heads;  // of some queries: bucket and tag of a table, and which query it is; then room
                    // to sort them
  int16_t* thresholds;  // of the same queries, those of all tables, if they are chosen for each
  size_t first = 0;     // of these queries
  uint64_t added = 0, opened = 0, filtered = 0;  // look-ups
  uint64_t found = 0, read = 0;                  // runs
  uint64_t named = 0, finished = 0;              // references
  uint64_t done = 0;                             // work since the last look at the stop

  const ColumnView& view(unsigned table) const { return *ring.tables[table].table; }
  const uint64_t* words(uint32_t query) const { return queries.words + W * (first + query); }
  const int16_t* thresholds_of(uint32_t query) const {
    return options.balance ? thresholds + size_t{ring.count} * query : options.thresholds;
  }
  Status at_table(Status status, unsigned table) {
    if (FPSTORE_UNLIKELY(status != Status::ok)) fault->table = table;
    return status;
  }

  bool stopped(uint64_t more) {
    done += more;
    if (FPSTORE_LIKELY(done < (1 << 12))) return false;
    const uint64_t steps = done / 4;  // a tag is a fraction of an entry decoded
    done = 0;
    return should_stop(options.stop, steps);
  }

  // Whether the pair is left to an earlier table, whose look-ups meet it too.
  bool met_before(const uint64_t* difference, unsigned table, const int16_t* t) const {
    for (unsigned i = 0; i < table; ++i) {
      const RingTable& r = ring.tables[i];
      int bucket = 0, tag = 0;
      for (unsigned w = 0; w < W; ++w) {
        bucket += static_cast<int>(ones(difference[w] & r.bucket_mask[w]));
        tag += static_cast<int>(ones(difference[w] & r.tag_mask[w]));
      }
      if (bucket <= t[i] && bucket + tag <= t[i] + t[i + 1 < ring.count ? i + 1 : 0] + 1)
        return true;
    }
    return false;
  }

  // Reads the rests of copies, which completes them.
  Status read_copies(const Run& run) {
    const ColumnView& t = view(run.table);
    const uint64_t* const query = words(run.query);
    const uint64_t base = gather(t.forward, query) ^ run.head;
    for (unsigned i = 0; i < run.count; ++i) {
      const uint64_t place = run.first + run.near[i];
      const uint64_t difference =
          (head_of(t, 0, read_tag(t, place)) | read_rest(t, place) << t.rest_shift) ^ base;
      const unsigned distance = ones(difference);
      if (FPSTORE_LIKELY(distance > options.radius)) continue;
      const uint64_t unpermuted = gather(t.inverse, &difference);
      if (met_before(&unpermuted, run.table, thresholds_of(run.query))) continue;
      if (!push<uint64_t>(sink, *query ^ unpermuted, number(run.query), distance))
        return no_memory(fault);
    }
    return Status::ok;
  }

  // Reads the row numbers of references, and asks for the rows.
  Status name(const Run& run) {
    const ColumnView &t = view(run.table), &rows = *ring.rows;
    for (unsigned i = 0; i < run.count; ++i) {
      const uint64_t place = run.first + run.near[i], row = read_rest(t, place);
      if (FPSTORE_UNLIKELY(row >= rows.count))
        return (*fault = Fault{Status::bad_place, place, rows.count, row, run.table}).status;
      fetch_line(rows.tags + 8 * W * row);
      work->named[named++ % kNamed] =
          Named{run.head | head_of(t, 0, read_tag(t, place)), row, place, run.query, run.table};
      FPSTORE_TRY(finish_references(kFinishBehind));
    }
    return Status::ok;
  }

  // Reads the row that a reference leads to, which must have the bucket and the tag of the
  // reference.
  Status finish_reference(const Named& s) {
    const ColumnView &t = view(s.table), &rows = *ring.rows;
    const uint64_t at = 8 * uint64_t{W} * s.row;
    FPSTORE_TRY(at_table(verify(rows.pages, rows.tags_at + at, 8 * W, fault), ring.count));
    const uint64_t* const query = words(s.query);
    uint64_t row[W], difference[W];
    unsigned distance = 0;
    for (unsigned w = 0; w < W; ++w) {
      row[w] = read_once(load64(rows.tags + at + 8 * w));
      difference[w] = row[w] ^ query[w];
      distance += ones(difference[w]);
    }
    const uint64_t head = gather(t.forward, row);
    if (FPSTORE_UNLIKELY(head != s.head))
      return (*fault = Fault{Status::bad_key, s.place, s.head, head, s.table}).status;
    if (distance > options.radius || met_before(difference, s.table, thresholds_of(s.query)))
      return Status::ok;
    return push<uint64_t>(sink, s.row, number(s.query), distance) ? Status::ok : no_memory(fault);
  }

  Status finish_references(unsigned behind) {
    for (; named - finished > behind; ++finished) {
      FPSTORE_TRY(finish_reference(work->named[finished % kNamed]));
    }
    return Status::ok;
  }

  // Takes runs on, until at most `behind` wait. A run is at most kTagsAtOnce entries long, so its
  // rests lie in few pages.
  Status read_runs(unsigned behind) {
    for (; found - read > behind; ++read) {
      const Run& run = work->runs[read % kRuns];
      const ColumnView& t = view(run.table);
      Status status = Status::ok;
      if (t.rest_bytes) {
        const uint64_t first = run.first + run.near[0],
                       n = run.near[run.count - 1] - run.near[0] + 1u;
        status = at_table(
            verify(t.pages, t.rest_at + t.rest_bytes * first, t.rest_bytes * n, fault), run.table);
      }
      if (status == Status::ok) status = W > 1 ? name(run) : read_copies(run);
      if (FPSTORE_UNLIKELY(status != Status::ok)) return status;
    }
    return Status::ok;
  }

  // Reads where a bucket lies, and asks for its tags; what follows them for long the processor asks
  // for itself.
  Status open(Lookup* look) {
    const ColumnView& t = view(look->table);
    FPSTORE_TRY(read_bucket(t, look->bucket, &look->start, &look->end, fault));
    uintptr_t p = reinterpret_cast<uintptr_t>(t.tags + 2 * look->start) & ~uintptr_t{63};
    uintptr_t end = reinterpret_cast<uintptr_t>(t.tags + 2 * look->end);
    if (end > p + 16 * 64) end = p + 16 * 64;
    for (; p < end; p += 64) fetch_line(reinterpret_cast<const void*>(p));
    return Status::ok;
  }

  // Compares the tags of a bucket.
  Status filter(const Lookup& look) {
    const ColumnView& t = view(look.table);
    if (FPSTORE_UNLIKELY(stopped(16))) return interrupted(fault);
    counters->candidates += look.end - look.start;
    uint64_t n;
    for (uint64_t place = look.start; place < look.end; place += n) {
      n = look.end - place < kTagsAtOnce ? look.end - place : kTagsAtOnce;
      if (FPSTORE_UNLIKELY(stopped(n))) return interrupted(fault);
      FPSTORE_TRY(at_table(verify(t.pages, t.tags_at + 2 * place, 2 * n, fault), look.table));
      Run& run = work->runs[found % kRuns];
      run.count = Isa::near_tags(t.tags + 2 * place, static_cast<unsigned>(n), look.tag, t.tag_mask,
                                 look.limit, run.near);
      if (!run.count) continue;
      run.head = head_of(t, look.bucket, 0);
      run.first = place;
      run.table = look.table;
      run.query = look.query;
      counters->survivors += run.count;
      for (unsigned i = 0; i < run.count; ++i)
        fetch_line(t.rest + t.rest_bytes * (place + run.near[i]));
      ++found;
      FPSTORE_TRY(read_runs(kReadBehind));
    }
    return Status::ok;
  }

  Status read_lookups(unsigned open_behind, unsigned filter_behind) {
    for (; added - opened > open_behind; ++opened) {
      Lookup* const look = work->lookups + opened % kLookups;
      FPSTORE_TRY(at_table(open(look), look->table));
    }
    for (; added - filtered > filter_behind; ++filtered) {
      FPSTORE_TRY(filter(work->lookups[filtered % kLookups]));
    }
    return Status::ok;
  }

  Status add(const Lookup& look) {
    fetch_line(view(look.table).directory + 4 * uint64_t{look.bucket});
    work->lookups[added++ % kLookups] = look;
    return read_lookups(kOpenBehind, kFilterBehind);
  }

  // All look-ups of some queries in a table: with f bits of the bucket flipped the tag may differ
  // in f bits fewer.
  Status look_up(unsigned table, size_t count) {
    const ColumnView& t = view(table);
    const unsigned next = table + 1 < ring.count ? table + 1 : 0;
    int most = -1;
    for (uint32_t q = 0; q < (options.balance ? count : 1); ++q)
      if (thresholds_of(q)[table] > most) most = thresholds_of(q)[table];
    if (most < 0 || t.count == 0) return Status::ok;
    for (size_t q = 0; q < count; ++q)
      heads[q] =
          (gather(t.forward, words(static_cast<uint32_t>(q))) >> kQueryBits << kQueryBits) | q;
    if (count >= kOrderedFrom && t.bucket_bits) {
      kernels(64).sort_keys(heads, heads + count, count, t.bucket_bits, options.stop);
      if (options.stop && options.stop->ended) return interrupted(fault);
    }
    const uint32_t end = uint32_t{1} << t.bucket_bits;
    Lookup look{};
    look.table = static_cast<uint16_t>(table);
    if (most > static_cast<int>(t.bucket_bits)) most = static_cast<int>(t.bucket_bits);
    for (int f = 0; f <= most; ++f) {
      count = options.balance ? keep_from(table, f, count) : count;
      for (uint32_t mask = first_mask(static_cast<unsigned>(f)); mask < end;
           mask = next_mask(mask, end))
        for (size_t i = 0; i < count; ++i) {
          look.query = static_cast<uint32_t>(heads[i] & (kTogether - 1));
          const int16_t* const own = thresholds_of(look.query);
          const unsigned limit = static_cast<unsigned>(
              own[table] + own[next] + 1 - f);  // not negative: a threshold is at least -1
          look.limit = static_cast<uint8_t>(limit < kTagBits ? limit : kTagBits);
          look.bucket = static_cast<uint32_t>(leading_bits(heads[i], t.bucket_bits)) ^ mask;
          look.tag = tag_of(heads[i], t.bucket_bits);
          ++counters->lookups;
          FPSTORE_TRY(add(look));
        }
    }
    return Status::ok;
  }

  // Keeps the heads of the queries whose threshold in a table is at least f; returns how many.
  size_t keep_from(unsigned table, int f, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i)
      if (thresholds_of(static_cast<uint32_t>(heads[i] & (kTogether - 1)))[table] >= f)
        heads[kept++] = heads[i];
    return kept;
  }

  // Chooses the thresholds of each of some queries.
  Status choose(size_t count) {
    for (uint32_t q = 0; q < count; ++q) {
      if (FPSTORE_UNLIKELY(stopped(kChoiceWork))) return interrupted(fault);
      for (unsigned i = 0; i < ring.count; ++i)
        work->buckets[i] =
            static_cast<uint32_t>(gather(view(i).forward, words(q)) >> (64 - view(i).bucket_bits));
      const Status status = choose_thresholds(ring, work->buckets, options.radius, &work->sharing,
                                              thresholds + size_t{ring.count} * q, fault);
      if (FPSTORE_UNLIKELY(status != Status::ok)) return status;
    }
    return Status::ok;
  }

  Status drain() {
    Status status = read_lookups(0, 0);
    if (status == Status::ok) status = read_runs(0);
    return status == Status::ok ? finish_references(0) : status;
  }

  Status run() {
    for (; first < queries.count; first += kTogether) {
      const size_t count = queries.count - first < kTogether ? queries.count - first : kTogether;
      if (FPSTORE_UNLIKELY(should_stop(options.stop, kBlockWork))) return interrupted(fault);
      Status status = options.balance ? choose(count) : Status::ok;
      for (unsigned i = 0; i < ring.count && status == Status::ok; ++i) status = look_up(i, count);
      if (status == Status::ok) status = drain();
      if (FPSTORE_UNLIKELY(status != Status::ok)) return status;
    }
    return Status::ok;
  }

 private:
  // Of a query, among all.
  uint32_t number(uint32_t query) const { return static_cast<uint32_t>(first + query); }
};

template <class Isa, unsigned W>
Status probe_columns(const Ring& ring, const Queries& queries, const ColumnOptions& options,
                     Sink* sink, ColumnCounters* counters, Fault* fault) {
  *fault = Fault{};
  const size_t count = queries.count < kTogether ? queries.count : kTogether,
               heads = 2 * sizeof(uint64_t) * count;
  const size_t bytes =
      sizeof(ColumnWork) + heads + (options.balance ? sizeof(int16_t) * ring.count * count : 0);
  auto* const memory = static_cast<uint8_t*>(take_memory(bytes));
  if (!memory) return no_memory(fault);
  auto* const chosen = reinterpret_cast<int16_t*>(memory + sizeof(ColumnWork) + heads);
  ColumnFlow<Isa, W> flow{ring,
                          queries,
                          options,
                          sink,
                          counters,
                          fault,
                          reinterpret_cast<ColumnWork*>(memory),
                          reinterpret_cast<uint64_t*>(memory + sizeof(ColumnWork)),
                          chosen};
  const Status status = flow.run();
  give_back(memory, bytes);
  return status;
}

// Writes the places, ascending, of the rows within the radius of the query, and how far they are;
// returns how many.
template <unsigned W>
size_t near_rows(const uint8_t* rows, size_t n, const uint64_t* query, unsigned radius,
                 uint32_t* places, uint16_t* distances) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    unsigned distance = 0;
    for (unsigned w = 0; w < W; ++w) distance += ones(load64(rows + 8 * (W * i + w)) ^ query[w]);
    places[count] = static_cast<uint32_t>(i);
    distances[count] = static_cast<uint16_t>(distance);
    count += distance <= radius;
  }
  return count;
}

}  // namespace FPSTORE_ISA
}  // namespace fpstore
