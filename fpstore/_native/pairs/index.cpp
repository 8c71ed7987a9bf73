#include "pairs/request.hpp"

namespace fpstore {

bool index_buckets(const uint64_t* rows, unsigned words, uint64_t count, unsigned bucket_bits,
                   uint64_t* starts, uint16_t* tags, Stopper* stop) {
  constexpr uint64_t kLook = 1 << 14;  // rows between two looks at the stop
  uint64_t next = 0;                   // the bucket whose start is found next
  for (uint64_t i = 0; i < count; ++i) {
    if (!(i % kLook) && should_stop(stop, kLook)) return true;
    const uint64_t row = rows[i * words], bucket = leading_bits(row, bucket_bits);
    if (bucket + 1 < next) return false;
    for (; next <= bucket; ++next) starts[next] = i;
    if (tags) tags[i] = tag_of(row, bucket_bits);
  }
  for (; next <= uint64_t{1} << bucket_bits; ++next) starts[next] = count;
  return true;
}

namespace {

template <class Row>
void sort_rows_of_part(const RowsOfPart& part, Row* out, uint64_t* starts, uint16_t* tags) {
  const Row* const in = rows<Row>(part.rows);
  const unsigned depth = part.depth, bits = part.bits, tag_at = depth + bits;
  const auto bucket_of = [&](uint64_t word) { return leading_bits(word << depth, bits); };
  if (!out) {
    uint64_t next = 0;
    for (uint64_t i = 0; i < part.count; ++i) {
      const uint64_t word = leading_word(in[i]), bucket = bucket_of(word);
      for (; next <= bucket; ++next) starts[next] = i;
      tags[i] = tag_of(word, tag_at);
    }
    for (; next <= uint64_t{1} << bits; ++next) starts[next] = part.count;
    return;
  }
  // Counts stand two places behind their bucket, and starts one behind: each is moved on to the
  // next one.
  memset(starts, 0, ((size_t{1} << bits) + 2) * sizeof *starts);
  for (uint64_t i = 0; i < part.count; ++i) ++starts[bucket_of(leading_word(in[i])) + 2];
  for (size_t b = 1; b < size_t{1} << bits; ++b) starts[b + 2] += starts[b + 1];
  uint64_t* const next = starts + 1;
  for (uint64_t i = 0; i < part.count; ++i) {
    const Row row = in[i];
    const uint64_t word = leading_word(row), to = next[bucket_of(word)]++;
    out[to] = row;
    tags[to] = tag_of(word, tag_at);
  }
}

}  // namespace

void sort_part(const RowsOfPart& part, uint64_t* out, uint64_t* starts, uint16_t* tags) {
  with_row(part.words,
           [&](auto row) { sort_rows_of_part(part, rows<decltype(row)>(out), starts, tags); });
}

bool find_places(const RowIndex& index, const uint64_t* rows, uint64_t count, uint64_t* places) {
  constexpr uint64_t kTogether = 32;  // rows whose memory is fetched at the same time
  const unsigned words = index.words;
  const auto bucket_of = [&](uint64_t i) { return leading_bits(rows[i * words], index.bits); };
  const auto less = [&](uint64_t place, const uint64_t* row) {
    const uint64_t* const there = index.rows + place * words;
    for (unsigned w = 0; w < words; ++w)
      if (there[w] != row[w]) return there[w] < row[w];
    return false;
  };
  for (uint64_t i = 0; i < count; i += kTogether) {
    const uint64_t end = i + kTogether < count ? i + kTogether : count;
    for (uint64_t j = i; j < end; ++j) fetch_line(index.starts + bucket_of(j));
    for (uint64_t j = i; j < end; ++j) {
      places[j] = index.starts[bucket_of(j)];
      fetch_line(index.rows + places[j] * words);
    }
    for (uint64_t j = i; j < end; ++j) {
      uint64_t low = places[j], high = index.starts[bucket_of(j) + 1];
      while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (less(middle, rows + j * words))
          low = middle + 1;
        else
          high = middle;
      }
      if (low == index.count || memcmp(index.rows + low * words, rows + j * words, 8 * words))
        return false;
      places[j] = low;
    }
  }
  return true;
}

}  // namespace fpstore
