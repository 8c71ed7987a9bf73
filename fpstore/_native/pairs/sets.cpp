#include "pairs/sets.hpp"

#include <memory>
#include <unordered_map>

#include "isa/kernels.hpp"
#include "pairs/request.hpp"

namespace fpstore {

template <class Number>
void unite(Number* parents, const uint64_t* a, const uint64_t* b, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const Number x = least_of_set(parents, static_cast<Number>(a[i])),
                 y = least_of_set(parents, static_cast<Number>(b[i]));
    if (x < y)
      parents[y] = x;
    else
      parents[x] = y;
  }
}

template <class Number>
void link_groups(Number* parents, const LinkGroups& groups, uint8_t* left, Stopper* stop) {
  const LinkGroup link = pair_kernels().link_group[groups.words / 2];
  std::vector<uint32_t> labels;
  std::vector<uint64_t> links;
  std::unordered_map<uint64_t, uint32_t> firsts;
  for (uint64_t g = 0; g < groups.count; ++g) {
    const uint64_t first = groups.lims[g], n = groups.lims[g + 1] - first;
    const uint64_t* const members = groups.members + first;
    const auto root = [&](uint64_t i) {
      return least_of_set(parents, static_cast<Number>(members[i]));
    };
    uint64_t same = 0;
    while (same < n && root(same) == root(0)) ++same;
    left[g] = same < n && n > groups.most;
    if (should_stop(stop, n)) return;
    if (same == n || left[g]) continue;
    labels.resize(n);
    links.resize(2 * n);
    firsts.clear();
    for (uint64_t i = 0; i < n; ++i)
      labels[i] = firsts.emplace(root(i), static_cast<uint32_t>(i)).first->second;
    const uint64_t found = link(groups.rows + groups.words * first, members, n, groups.radius,
                                labels.data(), links.data());
    for (uint64_t i = 0; i < found; ++i) unite(parents, &links[2 * i], &links[2 * i + 1], 1);
    if (should_stop(stop, n * n)) return;
  }
}

uint64_t RankedBits::rank_all() {
  before.resize(bits.size());
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
void name_sets(Number* parents, uint64_t count, Stopper* stop) {
  // The parent comes before, and has its name.
  until_stopped(count, stop, [&](uint64_t i) { parents[i] = parents[parents[i]]; });
}

template <class Number>
SharedLabels shared_labels(const Number* labels, uint64_t count, Stopper* stop) {
  Number most = 0;
  for (uint64_t i = 0; i < count; ++i) most = most < labels[i] ? labels[i] : most;
  SharedLabels found{RankedBits(most), {}, 0};
  {
    Bits once(most);
    until_stopped(count, stop, [&](uint64_t i) {
      if (FPSTORE_UNLIKELY(once.add(labels[i]))) found.shared.add(labels[i]);
    });
  }
  found.sizes.resize(found.shared.rank_all());
  until_stopped(count, stop, [&](uint64_t i) {
    if (!found.shared.has(labels[i])) return;
    ++found.sizes[found.shared.rank(labels[i])];
    ++found.count;
  });
  return found;
}

namespace {

// A document and its place, which are sorted by the document; in a word if both have 32 bits.
struct Packed {
  uint64_t both;

  static Packed of(uint64_t document, uint64_t place) { return {document << 32 | place}; }
  uint64_t document() const { return both >> 32; }
  uint64_t place() const { return both & UINT32_MAX; }
  static void sort(Packed* items, Packed* tmp, size_t n, Stopper* stop) {
    kernels(64).sort_keys(&items->both, &tmp->both, n, 64, stop);
  }
};
struct Unpacked {
  uint64_t first, second;

  static Unpacked of(uint64_t document, uint64_t place) { return {document, place}; }
  uint64_t document() const { return first; }
  uint64_t place() const { return second; }
  static void sort(Unpacked* items, Unpacked* tmp, size_t n, Stopper* stop) {
    kernels(64).sort_pairs(&items->first, &tmp->first, n, stop);
  }
};

// Sorts the documents of one label, most often very few.
template <class Item>
void sort_items(Item* items, Item* tmp, size_t n, Stopper* stop) {
  constexpr size_t kFew = 24;
  if (n > kFew) return Item::sort(items, tmp, n, stop);
  for (size_t i = 1; i < n; ++i) {
    const Item item = items[i];
    size_t j = i;
    for (; j > 0 && items[j - 1].document() > item.document(); --j) items[j] = items[j - 1];
    items[j] = item;
  }
}

template <class Item, class Number, class Document>
void group_items(const Number* labels, const Document* documents, uint64_t count,
                 const SharedLabels& found, const SharedDocuments& out, Stopper* stop) {
  const uint64_t sets = found.sizes.size();
  std::vector<uint64_t> ends(sets);
  uint64_t sum = 0, largest = sets;
  for (uint64_t s = 0; s < sets; sum += found.sizes[s++]) {
    ends[s] = sum;
    largest = largest < found.sizes[s] ? found.sizes[s] : largest;
  }
  const std::unique_ptr<Item[]> items(new Item[found.count]), tmp(new Item[largest]);
  until_stopped(count, stop, [&](uint64_t i) {
    if (found.shared.has(labels[i]))
      items[ends[found.shared.rank(labels[i])]++] = Item::of(documents ? documents[i] : i, i);
  });
  if (stop->ended) return;
  const std::unique_ptr<Item[]> order(new Item[sets]);  // of the labels: their least documents
  until_stopped(sets, stop, [&](uint64_t s) {
    Item* const first = items.get() + (ends[s] - found.sizes[s]);
    sort_items(first, tmp.get(), found.sizes[s], stop);
    order[s] = Item::of(first->document(), s);
  });
  if (stop->ended) return;
  sort_items(order.get(), tmp.get(), sets, stop);
  uint64_t done = 0;
  out.lims[0] = 0;
  until_stopped(sets, stop, [&](uint64_t rank) {
    const uint64_t s = order[rank].place();
    for (uint64_t i = ends[s] - found.sizes[s]; i < ends[s]; ++i, ++done) {
      out.documents[done] = items[i].document();
      if (out.places) out.places[done] = items[i].place();
    }
    out.lims[rank + 1] = done;
  });
}

}  // namespace

template <class Number, class Document>
void group_documents(const Number* labels, const Document* documents, uint64_t count,
                     const SharedLabels& found, const SharedDocuments& out, Stopper* stop) {
  const bool narrow = sizeof(Document) <= sizeof(uint32_t) && count <= UINT32_MAX;
  if (narrow)
    group_items<Packed>(labels, documents, count, found, out, stop);
  else
    group_items<Unpacked>(labels, documents, count, found, out, stop);
}

template void unite(uint32_t*, const uint64_t*, const uint64_t*, uint64_t);
template void unite(uint64_t*, const uint64_t*, const uint64_t*, uint64_t);
template void link_groups(uint32_t*, const LinkGroups&, uint8_t*, Stopper*);
template void link_groups(uint64_t*, const LinkGroups&, uint8_t*, Stopper*);
template void name_sets(uint32_t*, uint64_t, Stopper*);
template void name_sets(uint64_t*, uint64_t, Stopper*);

template SharedLabels shared_labels(const uint32_t*, uint64_t, Stopper*);
template SharedLabels shared_labels(const uint64_t*, uint64_t, Stopper*);
template void group_documents(const uint32_t*, const uint32_t*, uint64_t, const SharedLabels&,
                              const SharedDocuments&, Stopper*);
template void group_documents(const uint32_t*, const uint64_t*, uint64_t, const SharedLabels&,
                              const SharedDocuments&, Stopper*);
template void group_documents(const uint64_t*, const uint32_t*, uint64_t, const SharedLabels&,
                              const SharedDocuments&, Stopper*);
template void group_documents(const uint64_t*, const uint64_t*, uint64_t, const SharedLabels&,
                              const SharedDocuments&, Stopper*);

}  // namespace fpstore
