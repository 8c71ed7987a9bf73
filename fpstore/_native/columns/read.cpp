#include "columns/read.hpp"

#include "columns/kernels.hpp"
#include "isa/kernels.hpp"

namespace fpstore {

namespace {

constexpr unsigned kAtOnce = 512;  // entries of a scan
constexpr unsigned kGroup = 32;    // look-ups that wait for memory together

Status bad_directory(const ColumnView& t, uint64_t got, Fault* fault) {
  *fault = Fault{Status::bad_directory, UINT64_MAX, t.count, got};
  return fault->status;
}

// The bucket that has the entry at a place.
Status find_bucket(const ColumnView& t, uint64_t place, uint64_t* bucket, Fault* fault) {
  uint64_t low = 0, high = bucket_count(t) - 1, start, end;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    const Status status = read_bucket(t, middle, &start, &end, fault);
    if (status != Status::ok) return status;
    if (end > place) high = middle;
    else low = middle + 1;
  }
  *bucket = low;
  return Status::ok;
}

Status trust_entries(const ColumnView& t, uint64_t first, uint64_t n, Fault* fault) {
  const uint64_t bytes = t.rows ? 8 * t.words : 2;
  const Status status = trust(t.pages, t.tags_at + bytes * first, bytes * n, fault);
  if (status != Status::ok || !t.rest_bytes) return status;
  return trust(t.pages, t.rest_at + t.rest_bytes * first, t.rest_bytes * n, fault);
}

// An entry within its bucket, as a number that ascends with it.
Status read_tail(const ColumnView& t, uint64_t place, uint64_t* tail, Fault* fault) {
  const Status status = trust_entries(t, place, 1, fault);
  *tail = read_tag(t, place) << 48 | read_rest(t, place);
  return status;
}

// Whether a row is less than a fingerprint, or equal to it.
Status compare_row(const ColumnView& t, uint64_t row, const uint64_t* words, bool* less, bool* equal, Fault* fault) {
  const Status status = trust_entries(t, row, 1, fault);
  *less = false;
  *equal = true;
  for (unsigned w = 0; w < t.words && *equal; ++w) {
    const uint64_t word = read_once(load64(t.tags + 8 * (t.words * row + w)));
    *less = word < words[w];
    *equal = word == words[w];
  }
  return status;
}

// One fingerprint on its way.
struct Sought {
  uint64_t key;
  uint64_t start;
  uint64_t end;
};

Status search_copies(const ColumnView& t, const Sought& s, uint64_t* place, Fault* fault) {
  const uint64_t wanted = s.key << t.bucket_bits >> 48 << 48 | (s.key >> t.rest_shift & t.rest_mask);
  uint64_t low = s.start, high = s.end, tail;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    const Status status = read_tail(t, middle, &tail, fault);
    if (status != Status::ok) return status;
    if (tail == wanted) {
      *place = middle;
      return Status::ok;
    }
    if (tail < wanted) low = middle + 1;
    else high = middle;
  }
  return Status::ok;
}

Status search_rows(const ColumnView& t, const Sought& s, const uint64_t* words, uint64_t* place, Fault* fault) {
  uint64_t low = s.start, high = s.end;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    bool less, equal;
    const Status status = compare_row(t, middle, words, &less, &equal, fault);
    if (status != Status::ok) return status;
    if (equal) {
      *place = middle;
      return Status::ok;
    }
    if (less) low = middle + 1;
    else high = middle;
  }
  return Status::ok;
}

unsigned bound_of(const Scanned& to, size_t query, unsigned radius) { return to.nearest ? to.nearest->queries[query].bound : radius; }

Status scan_keys(const ColumnView& t, const Entries& part, const ColumnQueries& queries, unsigned radius, const Scanned& to,
                 Fault* fault) {
  uint64_t keys[kAtOnce];
  uint32_t places[kAtOnce];
  const Status status = read_entries(t, part, keys, fault);
  if (status != Status::ok) return status;
  for (size_t q = 0; q < queries.count; ++q) {
    const uint64_t base = gather(t.forward, queries.words + q);
    const size_t near = kernels(64).near(keys, part.end - part.first, &base, bound_of(to, q, radius), places);
    for (size_t i = 0; i < near; ++i) {
      const uint64_t key = keys[places[i]];
      const Match<uint64_t> match{gather(t.inverse, &key), static_cast<uint32_t>(q), ones(key ^ base)};
      if (!(to.nearest ? keep(to.nearest, match) : push(to.sink, match.fingerprint, match.query, match.distance)))
        return column_no_memory(fault);
    }
  }
  return Status::ok;
}

template <unsigned Words>
bool keep_row(const uint8_t* row, uint32_t query, unsigned distance, Nearest* nearest) {
  Match<Wide<Words>> match{{}, query, distance};
  memcpy(match.fingerprint.word, row, sizeof match.fingerprint.word);
  return keep(nearest, match);
}

Status scan_rows(const ColumnView& t, const Entries& part, const ColumnQueries& queries, unsigned radius, const Scanned& to,
                 Fault* fault) {
  uint32_t places[kAtOnce];
  uint16_t distances[kAtOnce];
  const Status status = trust_entries(t, part.first, part.end - part.first, fault);
  if (status != Status::ok) return status;
  const NearRows near_rows = t.words == 2 ? column_kernels().near_pairs : column_kernels().near_fours;
  const uint8_t* const rows = t.tags + 8 * t.words * part.first;
  for (size_t q = 0; q < queries.count; ++q) {
    const uint32_t query = static_cast<uint32_t>(q);
    const size_t near =
        near_rows(rows, part.end - part.first, queries.words + t.words * q, bound_of(to, q, radius), places, distances);
    for (size_t i = 0; i < near; ++i) {
      const uint8_t* const row = rows + 8 * t.words * places[i];
      const bool fine = !to.nearest     ? push<uint64_t>(to.sink, part.first + places[i], query, distances[i])
                        : t.words == 2 ? keep_row<2>(row, query, distances[i], to.nearest)
                                       : keep_row<4>(row, query, distances[i], to.nearest);
      if (!fine) return column_no_memory(fault);
    }
  }
  return Status::ok;
}

}  // namespace

Status read_entries(const ColumnView& t, const Entries& entries, uint64_t* out, Fault* fault) {
  if (entries.first == entries.end) return Status::ok;
  Status status = trust_entries(t, entries.first, entries.end - entries.first, fault);
  if (status != Status::ok) return status;
  if (t.rows) {
    memcpy(out, t.tags + 8 * t.words * entries.first, 8 * t.words * (entries.end - entries.first));
    return Status::ok;
  }
  uint64_t bucket;
  status = find_bucket(t, entries.first, &bucket, fault);
  if (status != Status::ok) return status;
  for (uint64_t place = entries.first; place < entries.end; ++bucket) {
    if (bucket == bucket_count(t)) return bad_directory(t, place, fault);
    uint64_t start, end;
    status = read_bucket(t, bucket, &start, &end, fault);
    if (status != Status::ok) return status;
    if (start > place || (start < place && place != entries.first)) return bad_directory(t, start, fault);
    for (; place < end && place < entries.end; ++place)
      *out++ = head_of(t, bucket, read_tag(t, place)) | read_rest(t, place) << t.rest_shift;
  }
  return Status::ok;
}

Status locate_entries(const ColumnView& t, const ColumnQueries& fingerprints, uint64_t* places, Stopper* stop, Fault* fault) {
  Sought sought[kGroup];
  for (size_t i = 0; i < fingerprints.count; i += kGroup) {
    if (should_stop(stop, kGroup * kBlockWork)) return column_interrupted(fault);
    const size_t n = fingerprints.count - i < kGroup ? fingerprints.count - i : kGroup;
    const uint64_t* const words = fingerprints.words + t.words * i;
    for (size_t j = 0; j < n; ++j) {
      sought[j].key = gather(t.forward, words + t.words * j);
      fetch_line(t.directory + 4 * (sought[j].key >> (64 - t.bucket_bits)));
    }
    for (size_t j = 0; j < n; ++j) {
      Sought& s = sought[j];
      const Status status = read_bucket(t, s.key >> (64 - t.bucket_bits), &s.start, &s.end, fault);
      if (status != Status::ok) return status;
      const uint64_t middle = (s.start + s.end) / 2;
      fetch_line(t.tags + (t.rows ? 8 * t.words : 2) * middle);
      fetch_line(t.rest + t.rest_bytes * middle);
    }
    for (size_t j = 0; j < n; ++j) {
      places[i + j] = UINT64_MAX;
      const Status status = t.rows ? search_rows(t, sought[j], words + t.words * j, places + i + j, fault)
                                   : search_copies(t, sought[j], places + i + j, fault);
      if (status != Status::ok) return status;
    }
  }
  return Status::ok;
}

Status scan_entries(const ColumnView& t, const Entries& entries, const ColumnQueries& queries, unsigned radius, Stopper* stop,
                    const Scanned& to, Fault* fault) {
  for (uint64_t first = entries.first; first < entries.end; first += kAtOnce) {
    const Entries part{first, entries.end - first < kAtOnce ? entries.end : first + kAtOnce};
    if (should_stop(stop, (part.end - part.first) * (1 + queries.count))) return column_interrupted(fault);
    const Status status =
        t.rows ? scan_rows(t, part, queries, radius, to, fault) : scan_keys(t, part, queries, radius, to, fault);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace fpstore
