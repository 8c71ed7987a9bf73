#include "pairs/request.hpp"

namespace fpstore {

bool index_buckets(const uint64_t* rows, unsigned words, uint64_t count, unsigned bucket_bits, uint64_t* starts, uint16_t* tags) {
  uint64_t next = 0;  // the bucket whose start is found next
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = rows[i * words], bucket = bucket_bits ? row >> (64 - bucket_bits) : 0;
    if (bucket + 1 < next) return false;
    for (; next <= bucket; ++next) starts[next] = i;
    tags[i] = static_cast<uint16_t>(row << bucket_bits >> (64 - kTagBits));
  }
  for (; next <= uint64_t{1} << bucket_bits; ++next) starts[next] = count;
  return true;
}

namespace {

// The least member of the set, with the way to it halved.
template <class Number>
Number least(Number* parents, Number x) {
  while (parents[x] != x) x = parents[x] = parents[parents[x]];
  return x;
}

}  // namespace

template <class Number>
void unite(Number* parents, const uint64_t* a, const uint64_t* b, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const Number x = least(parents, static_cast<Number>(a[i])), y = least(parents, static_cast<Number>(b[i]));
    if (x < y) parents[y] = x;
    else parents[x] = y;
  }
}

template <class Number>
void name_sets(Number* parents, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) parents[i] = parents[parents[i]];  // the parent comes before, and has its name
}

template void unite(uint32_t*, const uint64_t*, const uint64_t*, uint64_t);
template void unite(uint64_t*, const uint64_t*, const uint64_t*, uint64_t);
template void name_sets(uint32_t*, uint64_t);
template void name_sets(uint64_t*, uint64_t);

}  // namespace fpstore
