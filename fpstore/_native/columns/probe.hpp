// Probes of column tables: how the look-ups of queries go through their stages, many at a time.
#pragma once
#include "columns/near_tags.hpp"
#include "columns/thresholds.hpp"

namespace fpstore {
namespace {

constexpr unsigned kSlots = 64;  // queries under way

template <unsigned W>
struct Slot {
  uint64_t words[W];
  uint32_t query;
  int16_t thresholds[kMostRing];
};

// One bucket of a table that a query is looked up in.
struct Lookup {
  uint64_t base;  // the query as a key, without a rest where entries are references
  uint64_t start;
  uint64_t end;
  uint32_t bucket;
  uint16_t table;
  uint8_t limit;  // bits in which a tag may differ
  uint8_t slot;
};

// An entry whose tag is near.
struct Survivor {
  uint64_t base;
  uint64_t head;  // its bucket and tag, as in its key
  uint64_t row;
  uint32_t place;
  uint16_t table;
  uint8_t slot;
};

// Places that go round. Each stage has a counter of its own, and none overtakes the one before it.
constexpr unsigned kLookups = 64, kOpenBehind = 12, kFilterBehind = 28;
constexpr unsigned kSurvivors = 64, kNameBehind = 16, kFinishBehind = 32;
static_assert(kOpenBehind < kFilterBehind && kFilterBehind < kLookups, "the stages follow each other around the ring");
static_assert(kNameBehind < kFinishBehind && kFinishBehind < kSurvivors, "the stages follow each other around the ring");

template <unsigned W>
struct ColumnWork {
  Slot<W> slots[kSlots];
  Lookup lookups[kLookups];
  Survivor survivors[kSurvivors];
  uint32_t places[kTagsAtOnce];
  uint64_t bases[kMostRing];
  uint32_t buckets[kMostRing];
  Sharing sharing;
};

// A probe under way. With W = 1 the entries are copies, with more words references to rows.
template <class Isa, unsigned W>
struct ColumnFlow {
  const Ring& ring;
  const ColumnOptions& options;
  Sink* sink;
  ColumnCounters* counters;
  Fault* fault;
  ColumnWork<W>* work;
  uint64_t added = 0, opened = 0, filtered = 0;  // look-ups
  uint64_t found = 0, named = 0, finished = 0;   // survivors
  uint64_t done = 0;                             // work since the last look at the stop

  const ColumnView& view(unsigned table) const { return *ring.tables[table].table; }
  Status at_table(Status status, unsigned table) {
    if (__builtin_expect(status != Status::ok, 0)) fault->table = table;
    return status;
  }

  bool stopped(uint64_t more) {
    done += more;
    if (__builtin_expect(done < (1 << 12), 1)) return false;
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
        bucket += __builtin_popcountll(difference[w] & r.bucket_mask[w]);
        tag += __builtin_popcountll(difference[w] & r.tag_mask[w]);
      }
      if (bucket <= t[i] && bucket + tag <= t[i] + t[i + 1 < ring.count ? i + 1 : 0] + 1) return true;
    }
    return false;
  }

  // Reads the rest of a copy, which completes it.
  Status finish_copy(const Survivor& s) {
    const ColumnView& t = view(s.table);
    if (t.rest_bytes) {
      const Status status = at_table(trust(t.pages, t.rest_at + uint64_t{t.rest_bytes} * s.place, t.rest_bytes, fault), s.table);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    const uint64_t difference = (s.head | read_rest(t, s.place) << t.rest_shift) ^ s.base;
    const unsigned distance = static_cast<unsigned>(__builtin_popcountll(difference));
    if (distance > options.radius) return Status::ok;
    const Slot<W>& slot = work->slots[s.slot];
    const uint64_t unpermuted = gather(t.inverse, &difference);
    if (met_before(&unpermuted, s.table, slot.thresholds)) return Status::ok;
    return add_match(sink, slot.words[0] ^ unpermuted, slot.query, distance) ? Status::ok : column_no_memory(fault);
  }

  // Reads the row number of a reference, and asks for the row.
  Status name(Survivor* s) {
    const ColumnView &t = view(s->table), &rows = *ring.rows;
    if (t.rest_bytes) {
      const Status status = trust(t.pages, t.rest_at + uint64_t{t.rest_bytes} * s->place, t.rest_bytes, fault);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    s->row = read_rest(t, s->place);
    if (__builtin_expect(s->row >= rows.count, 0)) return (*fault = Fault{Status::bad_place, s->place, rows.count, s->row}).status;
    __builtin_prefetch(rows.tags + 8 * W * s->row);
    return Status::ok;
  }

  // Reads the row that a reference leads to, which must have the bucket and the tag of the reference.
  Status finish_reference(const Survivor& s) {
    const ColumnView &t = view(s.table), &rows = *ring.rows;
    const uint64_t at = 8 * uint64_t{W} * s.row;
    const Status status = at_table(trust(rows.pages, rows.tags_at + at, 8 * W, fault), ring.count);
    if (__builtin_expect(status != Status::ok, 0)) return status;
    const Slot<W>& slot = work->slots[s.slot];
    uint64_t difference[W];
    unsigned distance = 0;
    for (unsigned w = 0; w < W; ++w) {
      difference[w] = read_once(load64(rows.tags + at + 8 * w)) ^ slot.words[w];
      distance += static_cast<unsigned>(__builtin_popcountll(difference[w]));
    }
    const uint64_t head = gather(t.forward, difference) ^ s.base;
    if (__builtin_expect(head != s.head, 0)) return (*fault = Fault{Status::bad_key, s.place, s.head, head, s.table}).status;
    if (distance > options.radius || met_before(difference, s.table, slot.thresholds)) return Status::ok;
    return add_match(sink, s.row, slot.query, distance) ? Status::ok : column_no_memory(fault);
  }

  // Takes survivors on, until at most so many wait at each stage.
  Status read_survivors(unsigned name_behind, unsigned finish_behind) {
    for (; W > 1 && found - named > name_behind; ++named) {
      Survivor* const s = work->survivors + named % kSurvivors;
      const Status status = at_table(name(s), s->table);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    for (; found - finished > finish_behind; ++finished) {
      const Survivor& s = work->survivors[finished % kSurvivors];
      const Status status = W > 1 ? finish_reference(s) : finish_copy(s);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    return Status::ok;
  }

  // Reads where a bucket lies, and asks for its tags; what follows them for long the processor asks for itself.
  Status open(Lookup* look) {
    const ColumnView& t = view(look->table);
    const Status status = read_bucket(t, look->bucket, &look->start, &look->end, fault);
    if (__builtin_expect(status != Status::ok, 0)) return status;
    uintptr_t p = reinterpret_cast<uintptr_t>(t.tags + 2 * look->start) & ~uintptr_t{63};
    uintptr_t end = reinterpret_cast<uintptr_t>(t.tags + 2 * look->end);
    if (end > p + 16 * 64) end = p + 16 * 64;
    for (; p < end; p += 64) __builtin_prefetch(reinterpret_cast<const void*>(p));
    return Status::ok;
  }

  // Compares the tags of a bucket.
  Status filter(const Lookup& look) {
    const ColumnView& t = view(look.table);
    if (__builtin_expect(stopped(16), 0)) return column_interrupted(fault);
    counters->candidates += look.end - look.start;
    const unsigned tag = static_cast<unsigned>(look.base << t.bucket_bits >> (64 - kTagBits));
    uint64_t n;
    for (uint64_t place = look.start; place < look.end; place += n) {
      n = look.end - place < kTagsAtOnce ? look.end - place : kTagsAtOnce;
      if (__builtin_expect(stopped(n), 0)) return column_interrupted(fault);
      Status status = at_table(trust(t.pages, t.tags_at + 2 * place, 2 * n, fault), look.table);
      if (__builtin_expect(status != Status::ok, 0)) return status;
      const unsigned near =
          Isa::near_tags(t.tags + 2 * place, static_cast<unsigned>(n), tag, t.tag_mask, look.limit, work->places);
      counters->survivors += near;
      for (unsigned i = 0; i < near; ++i) {
        const uint64_t at = place + work->places[i];
        __builtin_prefetch(t.rest + t.rest_bytes * at);
        work->survivors[found++ % kSurvivors] = Survivor{look.base, head_of(t, look.bucket, read_tag(t, at)), 0,
                                                         static_cast<uint32_t>(at), look.table, look.slot};
        status = read_survivors(kNameBehind, kFinishBehind);
        if (__builtin_expect(status != Status::ok, 0)) return status;
      }
    }
    return Status::ok;
  }

  Status read_lookups(unsigned open_behind, unsigned filter_behind) {
    for (; added - opened > open_behind; ++opened) {
      Lookup* const look = work->lookups + opened % kLookups;
      const Status status = at_table(open(look), look->table);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    for (; added - filtered > filter_behind; ++filtered) {
      const Status status = filter(work->lookups[filtered % kLookups]);
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    return Status::ok;
  }

  Status add(const Lookup& look) {
    __builtin_prefetch(view(look.table).directory + 4 * uint64_t{look.bucket});
    work->lookups[added++ % kLookups] = look;
    return read_lookups(kOpenBehind, kFilterBehind);
  }

  // All look-ups of a query in a table: with f bits of the bucket flipped the tag may differ in f bits fewer.
  Status look_up(unsigned table, unsigned slot, const int16_t* thresholds) {
    const ColumnView& t = view(table);
    const int own = thresholds[table], both = own + thresholds[table + 1 < ring.count ? table + 1 : 0] + 1;
    if (own < 0 || t.count == 0) return Status::ok;
    const uint32_t end = uint32_t{1} << t.bucket_bits;
    const unsigned most = static_cast<unsigned>(own) < t.bucket_bits ? static_cast<unsigned>(own) : t.bucket_bits;
    Lookup look{work->bases[table], 0, 0, 0, static_cast<uint16_t>(table), 0, static_cast<uint8_t>(slot)};
    for (unsigned f = 0; f <= most; ++f) {
      const unsigned limit = static_cast<unsigned>(both) - f;  // not negative: the other threshold is at least -1
      look.limit = static_cast<uint8_t>(limit < kTagBits ? limit : kTagBits);
      for (uint32_t mask = (uint32_t{1} << f) - 1; mask < end; mask = f ? next_mask(mask) : end) {
        look.bucket = work->buckets[table] ^ mask;
        ++counters->lookups;
        const Status status = add(look);
        if (__builtin_expect(status != Status::ok, 0)) return status;
      }
    }
    return Status::ok;
  }

  Status ask(const uint64_t* words, uint32_t query, unsigned number) {
    Slot<W>& slot = work->slots[number];
    memcpy(slot.words, words, sizeof slot.words);
    slot.query = query;
    for (unsigned i = 0; i < ring.count; ++i) {
      work->bases[i] = gather(view(i).forward, words);
      work->buckets[i] = static_cast<uint32_t>(work->bases[i] >> (64 - view(i).bucket_bits));
    }
    Status status = Status::ok;
    if (options.balance) status = choose_thresholds(ring, work->buckets, options.radius, &work->sharing, slot.thresholds, fault);
    else memcpy(slot.thresholds, options.thresholds, ring.count * sizeof *slot.thresholds);
    for (unsigned i = 0; i < ring.count && status == Status::ok; ++i) status = look_up(i, number, slot.thresholds);
    return status;
  }

  Status drain() {
    const Status status = read_lookups(0, 0);
    return status == Status::ok ? read_survivors(0, 0) : status;
  }

  Status run(const ColumnQueries& queries) {
    for (size_t q = 0; q < queries.count; q += kSlots) {
      if (__builtin_expect(should_stop(options.stop, kSlots), 0)) return column_interrupted(fault);
      for (unsigned i = 0; i < kSlots && q + i < queries.count; ++i) {
        const Status status = ask(queries.words + W * (q + i), static_cast<uint32_t>(q + i), i);
        if (__builtin_expect(status != Status::ok, 0)) return status;
      }
      const Status status = drain();
      if (__builtin_expect(status != Status::ok, 0)) return status;
    }
    return Status::ok;
  }
};

template <class Isa, unsigned W>
Status probe_columns(const Ring& ring, const ColumnQueries& queries, const ColumnOptions& options, Sink* sink,
                     ColumnCounters* counters, Fault* fault) {
  *fault = Fault{};
  auto* const work = static_cast<ColumnWork<W>*>(take_memory(sizeof(ColumnWork<W>)));
  if (!work) return column_no_memory(fault);
  ColumnFlow<Isa, W> flow{ring, options, sink, counters, fault, work};
  const Status status = flow.run(queries);
  give_back(work, sizeof(ColumnWork<W>));
  return status;
}

// Writes the places, ascending, of the rows within the radius of the query, and how far they are; returns how many.
template <unsigned W>
size_t near_rows(const uint8_t* rows, size_t n, const uint64_t* query, unsigned radius, uint32_t* places, uint16_t* distances) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    unsigned distance = 0;
    for (unsigned w = 0; w < W; ++w)
      distance += static_cast<unsigned>(__builtin_popcountll(load64(rows + 8 * (W * i + w)) ^ query[w]));
    places[count] = static_cast<uint32_t>(i);
    distances[count] = static_cast<uint16_t>(distance);
    count += distance <= radius;
  }
  return count;
}

}  // namespace
}  // namespace fpstore
