#include "columns/request.hpp"

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
    FPSTORE_TRY(read_bucket(t, middle, &start, &end, fault));
    if (end > place)
      high = middle;
    else
      low = middle + 1;
  }
  *bucket = low;
  return Status::ok;
}

Status verify_entries(const ColumnView& t, uint64_t first, uint64_t n, Fault* fault) {
  const uint64_t bytes = t.rows ? 8 * t.words : 2;
  const Status status = verify(t.pages, t.tags_at + bytes * first, bytes * n, fault);
  if (status != Status::ok || !t.rest_bytes) return status;
  return verify(t.pages, t.rest_at + t.rest_bytes * first, t.rest_bytes * n, fault);
}

// An entry within its bucket, as a number that ascends with it.
Status read_tail(const ColumnView& t, uint64_t place, uint64_t* tail, Fault* fault) {
  const Status status = verify_entries(t, place, 1, fault);
  *tail = read_tag(t, place) << 48 | read_rest(t, place);
  return status;
}

// Whether a row is less than a fingerprint, or equal to it.
Status compare_row(const ColumnView& t, uint64_t row, const uint64_t* words, bool* less,
                   bool* equal, Fault* fault) {
  const Status status = verify_entries(t, row, 1, fault);
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
  const uint64_t wanted =
      s.key << t.bucket_bits >> 48 << 48 | (s.key >> t.rest_shift & t.rest_mask);
  uint64_t low = s.start, high = s.end, tail;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    FPSTORE_TRY(read_tail(t, middle, &tail, fault));
    if (tail == wanted) {
      *place = middle;
      return Status::ok;
    }
    if (tail < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return Status::ok;
}

Status search_rows(const ColumnView& t, const Sought& s, const uint64_t* words, uint64_t* place,
                   Fault* fault) {
  uint64_t low = s.start, high = s.end;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    bool less, equal;
    FPSTORE_TRY(compare_row(t, middle, words, &less, &equal, fault));
    if (equal) {
      *place = middle;
      return Status::ok;
    }
    if (less)
      low = middle + 1;
    else
      high = middle;
  }
  return Status::ok;
}

unsigned bound_of(const ScanOptions& options, size_t query) {
  return options.nearest ? options.nearest->queries[query].bound : options.radius;
}

template <class Row>
bool add(const Match<Row>& match, Nearest* nearest, Sink* sink) {
  return nearest ? keep_nearest(nearest, match)
                 : push(sink, match.fingerprint, match.query, match.distance);
}

Status scan_keys(const ColumnView& t, const Entries& part, const Queries& queries,
                 const ScanOptions& options, Sink* sink, Fault* fault) {
  uint64_t keys[kAtOnce];
  uint32_t places[kAtOnce];
  FPSTORE_TRY(read_entries(t, part, keys, fault));
  for (size_t q = 0; q < queries.count; ++q) {
    const uint64_t base = gather(t.forward, queries.words + q);
    const size_t near =
        kernels(64).within_radius(keys, part.end - part.first, &base, bound_of(options, q), places);
    for (size_t i = 0; i < near; ++i) {
      const uint64_t key = keys[places[i]];
      const Match<uint64_t> match{gather(t.inverse, &key), static_cast<uint32_t>(q),
                                  ones(key ^ base)};
      if (!add(match, options.nearest, sink)) return no_memory(fault);
    }
  }
  return Status::ok;
}

template <unsigned Words>
Status scan_rows(const ColumnView& t, const Entries& part, const Queries& queries,
                 const ScanOptions& options, Sink* sink, Fault* fault) {
  uint32_t places[kAtOnce];
  uint16_t distances[kAtOnce];
  FPSTORE_TRY(verify_entries(t, part.first, part.end - part.first, fault));
  const NearRows near_rows = column_kernels().near_rows[Words / 2];
  const uint8_t* const rows = t.tags + 8 * Words * part.first;
  for (size_t q = 0; q < queries.count; ++q) {
    const size_t near = near_rows(rows, part.end - part.first, queries.words + Words * q,
                                  bound_of(options, q), places, distances);
    for (size_t i = 0; i < near; ++i) {
      Match<Wide<Words>> match{{}, static_cast<uint32_t>(q), distances[i]};
      memcpy(match.fingerprint.word, rows + 8 * Words * places[i], 8 * Words);
      if (!add(match, options.nearest, sink)) return no_memory(fault);
    }
  }
  return Status::ok;
}

}  // namespace

Status read_entries(const ColumnView& t, const Entries& entries, uint64_t* out, Fault* fault) {
  if (entries.first == entries.end) return Status::ok;
  FPSTORE_TRY(verify_entries(t, entries.first, entries.end - entries.first, fault));
  if (t.rows) {
    memcpy(out, t.tags + 8 * t.words * entries.first, 8 * t.words * (entries.end - entries.first));
    return Status::ok;
  }
  uint64_t bucket;
  FPSTORE_TRY(find_bucket(t, entries.first, &bucket, fault));
  for (uint64_t place = entries.first; place < entries.end; ++bucket) {
    if (bucket == bucket_count(t)) return bad_directory(t, place, fault);
    uint64_t start, end;
    FPSTORE_TRY(read_bucket(t, bucket, &start, &end, fault));
    if (start > place || (start < place && place != entries.first))
      return bad_directory(t, start, fault);
    for (; place < end && place < entries.end; ++place)
      *out++ = head_of(t, bucket, read_tag(t, place)) | read_rest(t, place) << t.rest_shift;
  }
  return Status::ok;
}

Status locate_entries(const ColumnView& t, const Queries& fingerprints, uint64_t* places,
                      Stopper* stop, Fault* fault) {
  Sought sought[kGroup];
  for (size_t i = 0; i < fingerprints.count; i += kGroup) {
    if (should_stop(stop, kGroup * kBlockWork)) return interrupted(fault);
    const size_t n = fingerprints.count - i < kGroup ? fingerprints.count - i : kGroup;
    const uint64_t* const words = fingerprints.words + t.words * i;
    for (size_t j = 0; j < n; ++j) {
      sought[j].key = gather(t.forward, words + t.words * j);
      fetch_line(t.directory + 4 * (sought[j].key >> (64 - t.bucket_bits)));
    }
    for (size_t j = 0; j < n; ++j) {
      Sought& s = sought[j];
      FPSTORE_TRY(read_bucket(t, s.key >> (64 - t.bucket_bits), &s.start, &s.end, fault));
      const uint64_t middle = (s.start + s.end) / 2;
      fetch_line(t.tags + (t.rows ? 8 * t.words : 2) * middle);
      fetch_line(t.rest + t.rest_bytes * middle);
    }
    for (size_t j = 0; j < n; ++j) {
      places[i + j] = UINT64_MAX;
      FPSTORE_TRY(t.rows ? search_rows(t, sought[j], words + t.words * j, places + i + j, fault)
                         : search_copies(t, sought[j], places + i + j, fault));
    }
  }
  return Status::ok;
}

Status scan_entries(const ColumnView& t, const Entries& entries, const Queries& queries,
                    const ScanOptions& options, Sink* sink, Fault* fault) {
  const auto scan = !t.rows ? scan_keys : t.words == 2 ? scan_rows<2> : scan_rows<4>;
  for (uint64_t first = entries.first; first < entries.end; first += kAtOnce) {
    const Entries part{first, entries.end - first < kAtOnce ? entries.end : first + kAtOnce};
    if (should_stop(options.stop, (part.end - part.first) * (1 + queries.count)))
      return interrupted(fault);
    FPSTORE_TRY(scan(t, part, queries, options, sink, fault));
  }
  return Status::ok;
}

}  // namespace fpstore
