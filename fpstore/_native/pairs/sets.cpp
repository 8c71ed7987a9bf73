#include "pairs/sets.hpp"

namespace fpstore {

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

uint64_t RankedBits::count() {
  uint64_t sum = 0;
  for (size_t w = 0; w < bits.size(); ++w) {
    before[w] = sum;
    sum += static_cast<unsigned>(__builtin_popcountll(bits[w]));
  }
  return sum;
}

namespace {

constexpr uint64_t kLook = 1 << 16;  // numbers between two looks at the stop

// Does something with the numbers from 0 to count, unless it is stopped.
template <class Work>
void until_stopped(uint64_t count, Stopper* stop, Work work) {
  for (uint64_t first = 0; first < count && !should_stop(stop, kLook); first += kLook)
    for (uint64_t i = first; i < count && i < first + kLook; ++i) work(i);
}

}  // namespace

template <class Number>
bool all_differ(const Number* numbers, uint64_t count, uint64_t most, Stopper* stop) {
  RankedBits seen(most);
  bool differ = true;
  until_stopped(count, stop, [&](uint64_t i) {
    differ &= !seen.has(numbers[i]);
    seen.add(numbers[i]);
  });
  return differ;
}

template <class Number>
void add_shared(const Number* labels, uint64_t count, RankedBits* shared, Stopper* stop) {
  std::vector<uint64_t> once(shared->bits.size());
  until_stopped(count, stop, [&](uint64_t i) {
    const uint64_t bit = uint64_t{1} << labels[i] % 64;
    uint64_t& seen = once[labels[i] / 64];
    if (__builtin_expect(seen & bit, 0)) shared->add(labels[i]);
    seen |= bit;
  });
}

template <class Number>
uint64_t places_with(const Number* labels, uint64_t count, const RankedBits& shared, uint64_t* places, Stopper* stop) {
  uint64_t found = 0;
  until_stopped(count, stop, [&](uint64_t i) {
    if (!shared.has(labels[i])) return;
    if (places) places[found] = i;
    ++found;
  });
  return found;
}

template <class Number>
std::vector<uint64_t> group_places(const Number* labels, const RankedBits& shared, uint64_t sets, const uint64_t* places, uint64_t count,
                                   uint64_t* grouped, Stopper* stop) {
  constexpr uint64_t kNone = ~uint64_t{0};
  std::vector<uint64_t> set_of(sets, kNone), lims(1);  // of the label with each rank
  until_stopped(count, stop, [&](uint64_t i) {
    uint64_t& set = set_of[shared.rank(labels[places[i]])];
    if (set == kNone) {
      set = lims.size();
      lims.push_back(0);
    }
    ++lims[set];
  });
  // First where each set begins, and, when its places are written, where it ends.
  uint64_t sum = 0;
  for (uint64_t& lim : lims) {
    const uint64_t size = lim;
    lim = sum;
    sum += size;
  }
  until_stopped(count, stop, [&](uint64_t i) { grouped[lims[set_of[shared.rank(labels[places[i]])]]++] = places[i]; });
  return lims;
}

template void unite(uint32_t*, const uint64_t*, const uint64_t*, uint64_t);
template void unite(uint64_t*, const uint64_t*, const uint64_t*, uint64_t);
template void name_sets(uint32_t*, uint64_t);
template void name_sets(uint64_t*, uint64_t);

template bool all_differ(const uint32_t*, uint64_t, uint64_t, Stopper*);
template void add_shared(const uint32_t*, uint64_t, RankedBits*, Stopper*);
template uint64_t places_with(const uint32_t*, uint64_t, const RankedBits&, uint64_t*, Stopper*);
template std::vector<uint64_t> group_places(const uint32_t*, const RankedBits&, uint64_t, const uint64_t*, uint64_t, uint64_t*, Stopper*);
template bool all_differ(const uint64_t*, uint64_t, uint64_t, Stopper*);
template void add_shared(const uint64_t*, uint64_t, RankedBits*, Stopper*);
template uint64_t places_with(const uint64_t*, uint64_t, const RankedBits&, uint64_t*, Stopper*);
template std::vector<uint64_t> group_places(const uint64_t*, const RankedBits&, uint64_t, const uint64_t*, uint64_t, uint64_t*, Stopper*);

}  // namespace fpstore
