// Joins of sorted rows: the pairs within a radius.
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "columns/column_header.hpp"
#include "pairs/request.hpp"
#include "pairs/sets.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using Tags = Array<uint16_t>;
using TagColumn = Array<const uint16_t>;

// Writes where each bucket begins, and the tags unless they are null.
void index_until_stopped(const Rows& rows, unsigned bucket_bits, uint64_t* starts, uint16_t* tags,
                         const Stop* stop, const char* unordered) {
  const unsigned words = words_in(rows);
  need(until_stopped(stop,
                     [&](Stopper* stopping) {
                       return index_buckets(rows.data(), words, count_of(rows), bucket_bits, starts,
                                            tags, stopping);
                     }),
       unordered);
}

// Writes where each bucket of rows begins, and the tags of all rows.
void index_rows(Rows rows, unsigned bucket_bits, MutableWords starts, Tags tags, const Stop* stop) {
  need(bucket_bits <= kMaxBucketBits, "too many bits for the number of a bucket");
  need(starts.size() == (size_t{1} << bucket_bits) + 1,
       "starts has a place for each bucket, and one more");
  need(tags.size() >= count_of(rows) + kSectionRoom / 2, "tags is too short");
  index_until_stopped(rows, bucket_bits, starts.data(), tags.data(), stop,
                      "rows are not in the order of their buckets");
}

void check_starts(const Words& starts, size_t rows) {
  need(starts.size() >= 2 && starts.data()[starts.size() - 1] == rows,
       "the last start is the number of rows");
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    need(starts.data()[i] <= starts.data()[i + 1], "starts descend");
}

unsigned bits_of_buckets(const Words& starts) {
  unsigned bits = 0;
  while (bits < kMaxBucketBits && (size_t{1} << bits) + 1 < starts.size()) ++bits;
  need((size_t{1} << bits) + 1 == starts.size(), "the number of buckets is a power of two");
  return bits;
}

// Of rows in the order of their buckets, with what index_rows wrote. Where buckets begin, or what a
// tag is, may be wrong: then pairs are missing, and nothing else is read or written.
template <class SomeRows, class SomeTags>
void check_table(const SomeRows& rows, const Words& starts, const SomeTags& tags,
                 const Bytes& permutation, unsigned tag_bits) {
  check_starts(starts, count_of(rows));
  need(tags.size() >= count_of(rows) + kSectionRoom / 2, "tags is too short");
  need(tag_bits <= kTagBits, "a tag has at most 16 bits");
  need(words_of(static_cast<unsigned>(permutation.size())) == words_in(rows),
       "rows of another width");
}

// Held while an object works without the interpreter's lock: a second thread is refused.
struct InUse {
  std::atomic<bool>& busy;
  explicit InUse(std::atomic<bool>& flag) : busy(flag) {
    need(!busy.exchange(true), "another thread is using it");
  }
  ~InUse() { busy = false; }
};

// Pairs that come in batches, until there are no more.
struct Batches {
  unsigned words = 1;
  bool done = false, stopped = false;
  std::atomic<bool> busy{false};

  // (a, b, distances) of about `room` pairs at most.
  template <class Add>
  nb::tuple more(size_t room, const Stop* stop, Add add) {
    const InUse used(busy);
    need(!stopped, "it was stopped: what it had found is lost");
    need(!(room >> 32), "room for too many pairs");
    room = std::max<size_t>(room, kTagsAtOnce);
    Buffer<uint64_t> a(room * words), b(room * words);
    Buffer<uint16_t> distances(room);
    PairSink sink{a.get(), b.get(), distances.get(), 0, room};
    stopped = true;
    done = until_stopped(stop, [&](Stopper* stopping) { return add(&sink, stopping); });
    stopped = false;
    return nb::make_tuple(fitted(&a, sink.count, room, words), fitted(&b, sink.count, room, words),
                          fitted(&distances, sink.count, room));
  }

  // Few pairs do not keep the room of many.
  template <class T>
  static nb::object fitted(Buffer<T>* column, size_t count, size_t room, unsigned each = 1) {
    if (count > room / 2) return column->array(count, each);
    Buffer<T> less(count * each);
    memcpy(less.get(), column->get(), sizeof(T) * count * each);
    return less.array(count, each);
  }
};

uint64_t largest_of(const Words& starts, uint64_t first, uint64_t end) {
  uint64_t largest = 0;
  for (uint64_t b = first; b < end; ++b)
    largest = std::max(largest, starts.data()[b + 1] - starts.data()[b]);
  return largest;
}

using Numbers = std::vector<unsigned>;

// What a join and a search for links share: the rows of one table, and the rules by which pairs
// meet in it and in those before it. The masks are rows, one for each of these tables.
template <class SomeRows, class SomeTags>
struct TableSearch : Batches {
  SomeRows rows;
  Words starts;
  SomeTags tags;
  std::vector<TableRule> rules;
  unsigned bucket_bits = 0, radius;
  uint16_t tag_mask = 0;
  Permutation inverse{};
  std::vector<uint64_t> groups = std::vector<uint64_t>((size_t{1} << kMostPartBits) + 1);

  TableSearch(SomeRows all, Words begins, SomeTags short_tags, const Bytes& permutation,
              const Rows& bucket_masks, const Rows& tag_masks, const Numbers& flips,
              const Numbers& both, unsigned tag_bits, unsigned within)
      : rows(all), starts(begins), tags(short_tags), radius(within) {
    words = words_in(rows);
    check_table(rows, starts, tags, permutation, tag_bits);
    bucket_bits = bits_of_buckets(starts);
    tag_mask = static_cast<uint16_t>(0xFFFFu << (kTagBits - tag_bits));
    inverse = permutation_of(permutation, true);
    const size_t tables = flips.size();
    need(tables && both.size() == tables && count_of(bucket_masks) == tables &&
             count_of(tag_masks) == tables,
         "one of each for each table");
    need_words(bucket_masks, words);
    need_words(tag_masks, words);
    for (size_t i = 0; i < tables; ++i) {
      TableRule rule{{}, {}, flips[i], both[i]};
      memcpy(rule.bucket_mask, bucket_masks.data() + i * words, 8 * words);
      memcpy(rule.tag_mask, tag_masks.data() + i * words, 8 * words);
      need(rule.both >= rule.flips, "both is at least flips");
      rules.push_back(rule);
    }
  }
  unsigned table() const { return static_cast<unsigned>(rules.size() - 1); }
};

using Side = std::tuple<Rows, Words, TagColumn>;

// The pairs of one table, or of some of its buckets: of a set, or of that and an opposite one.
struct PairJoin : TableSearch<Rows, TagColumn> {
  std::optional<Side> opposite;
  std::unique_ptr<uint64_t[]> places;  // where a large bucket is split
  std::unique_ptr<uint16_t[]> group_tags;
  Join join{};
  JoinPlace place{};

  PairJoin(Rows all, Words begins, TagColumn short_tags, Bytes permutation, Rows bucket_masks,
           Rows tag_masks, const Numbers& flips, const Numbers& both, unsigned tag_bits,
           unsigned within, uint64_t first, uint64_t end, std::optional<Side> other)
      : TableSearch(all, begins, short_tags, permutation, bucket_masks, tag_masks, flips, both,
                    tag_bits, within),
        opposite(std::move(other)) {
    JoinSide facing{};
    if (opposite) {
      const auto& [those, their_starts, their_tags] = *opposite;
      check_table(those, their_starts, their_tags, permutation, tag_bits);
      need(their_starts.size() == starts.size(), "the opposite set has other buckets");
      facing = {those.data(), their_starts.data(),
                reinterpret_cast<const uint8_t*>(their_tags.data())};
    }
    need(first <= end && end < starts.size(), "no such buckets");
    const uint64_t largest =
        opposite || rules.back().both != 1 ? 0 : largest_of(starts, first, end);
    if (largest >= kSplitFrom) {
      places.reset(new uint64_t[largest]);
      group_tags.reset(new uint16_t[largest + kSectionRoom / 2]);
    }
    join = {{rows.data(), starts.data(), reinterpret_cast<const uint8_t*>(tags.data())},
            facing,
            opposite.has_value(),
            {places.get(), group_tags.get(), groups.data()},
            rules.data(),
            table(),
            bucket_bits,
            radius,
            tag_mask,
            inverse};
    place.bucket = first;
    place.end = end;
  }

  nb::tuple more(size_t room, const Stop* stop) {
    return Batches::more(room, stop, [&](PairSink* sink, Stopper* stopping) {
      return pair_kernels().join[words / 2](join, &place, sink, stopping);
    });
  }
};

// Links the rows of a set that are near each other in one table; rows and tags change places.
struct Linking : TableSearch<MutableRows, Tags> {
  std::unique_ptr<uint64_t[]> live, stack, moved;
  std::unique_ptr<uint16_t[]> moved_tags;
  LinkTable links{};
  LinkPlace place{};

  // All buckets are searched.
  Linking(MutableRows all, Words begins, Tags short_tags, Bytes permutation, Rows bucket_masks,
          Rows tag_masks, const Numbers& flips, const Numbers& both, unsigned tag_bits,
          unsigned within)
      : TableSearch(all, begins, short_tags, permutation, bucket_masks, tag_masks, flips, both,
                    tag_bits, within) {
    const size_t buckets = starts.size() - 1;
    if (rules.back().flips && buckets > 1) {
      live.reset(new uint64_t[buckets]);
      for (size_t b = 0; b < buckets; ++b) live[b] = starts.data()[b + 1];
      stack.reset(new uint64_t[count_of(all)]);
    } else if (const uint64_t largest = largest_of(starts, 0, buckets);
               rules.back().both == 1 && largest >= kSplitFrom) {
      moved.reset(new uint64_t[largest * words]);
      moved_tags.reset(new uint16_t[largest]);
    }
    links = {rows.data(), starts.data(),
             tags.data(), rules.data(),
             table(),     bucket_bits,
             radius,      tag_mask,
             inverse,     {moved.get(), moved_tags.get(), groups.data()},
             live.get(),  stack.get()};
    place.end = buckets;
  }

  nb::tuple more(size_t room, const Stop* stop) {
    return Batches::more(room, stop, [&](PairSink* sink, Stopper* stopping) {
      return pair_kernels().link[words / 2](links, &place, sink, stopping);
    });
  }
};

// Sets of the numbers 0, 1, ..., each of which is its own at first; of 32 bits if these are enough.
struct Sets {
  uint64_t count;
  Buffer<uint32_t> few;
  Buffer<uint64_t> many;
  std::atomic<bool> busy{false};

  explicit Sets(uint64_t n) : count(n), few(is_small() ? n : 0), many(is_small() ? 0 : n) {
    if (is_small())
      std::iota(few.get(), few.get() + n, 0u);
    else
      std::iota(many.get(), many.get() + n, uint64_t{0});
  }
  bool is_small() const { return count <= UINT32_MAX; }

  void check_numbers(const Words& numbers) const {
    for (size_t i = 0; i < numbers.size(); ++i)
      if (numbers.data()[i] >= count) throw nb::index_error("no such number");
  }

  void unite_all(Words a, Words b) {
    const InUse used(busy);
    need(a.size() == b.size(), kUnequal);
    check_numbers(a);
    check_numbers(b);
    without_gil([&] {
      if (is_small())
        unite(few.get(), a.data(), b.data(), a.size());
      else
        unite(many.get(), a.data(), b.data(), a.size());
    });
  }

  // The least number of the set that each of some numbers is in.
  nb::object least(Words numbers) {
    const InUse used(busy);
    check_numbers(numbers);
    Buffer<uint64_t> out(numbers.size());
    without_gil([&] {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const uint64_t number = numbers.data()[i];
        out.get()[i] = is_small() ? least_of_set(few.get(), static_cast<uint32_t>(number))
                                  : least_of_set(many.get(), number);
      }
    });
    return out.array(numbers.size());
  }

  // Unites the members within a radius of each other in each group: group g has members[lims[g],
  // lims[g + 1]), and a row for each of them. A group of more than `most` members is left as it is,
  // unless all are united already. Returns whether each group was left.
  nb::object link_groups(Rows rows, Words members, Words lims, unsigned radius, uint64_t most,
                         const Stop* stop) {
    const InUse used(busy);
    check_starts(lims, members.size());
    need(count_of(rows) == members.size(), "a row for each member");
    check_numbers(members);
    Buffer<uint8_t> left(lims.size() - 1);
    until_stopped(stop, [&](Stopper* stopping) {
      if (is_small())
        link_all(few.get(), rows, members, lims, radius, most, left.get(), stopping);
      else
        link_all(many.get(), rows, members, lims, radius, most, left.get(), stopping);
    });
    return left.array(lims.size() - 1);
  }

  template <class Number>
  static void link_all(Number* parents, const Rows& rows, const Words& members, const Words& lims,
                       unsigned radius, uint64_t most, uint8_t* left, Stopper* stop) {
    const LinkGroup link = pair_kernels().link_group[words_in(rows) / 2];
    std::vector<uint32_t> labels;
    std::vector<uint64_t> links;
    std::unordered_map<uint64_t, uint32_t> firsts;
    for (size_t g = 0; g + 1 < lims.size(); ++g) {
      const uint64_t* const group = members.data() + lims.data()[g];
      const uint64_t n = lims.data()[g + 1] - lims.data()[g];
      const auto root = [&](uint64_t i) {
        return least_of_set(parents, static_cast<Number>(group[i]));
      };
      uint64_t same = 0;
      while (same < n && root(same) == root(0)) ++same;
      left[g] = same < n && n > most;
      if (should_stop(stop, n)) return;
      if (same == n || left[g]) continue;
      labels.resize(n);
      links.resize(2 * n);
      firsts.clear();
      for (uint64_t i = 0; i < n; ++i)
        labels[i] = firsts.emplace(root(i), static_cast<uint32_t>(i)).first->second;
      const uint64_t found = link(rows.data() + words_in(rows) * lims.data()[g], group, n, radius,
                                  labels.data(), links.data());
      for (uint64_t i = 0; i < found; ++i) unite(parents, &links[2 * i], &links[2 * i + 1], 1);
      if (should_stop(stop, n * n)) return;
    }
  }

  // The least number of the set of each; the sets end with it.
  nb::object names(const Stop* stop) {
    const InUse used(busy);
    const bool small = is_small();
    const uint64_t n = std::exchange(count, 0);
    until_stopped(stop, [&](Stopper* stopping) {
      small ? name_sets(few.get(), n, stopping) : name_sets(many.get(), n, stopping);
    });
    return small ? few.array(n) : many.array(n);
  }
};

// The documents that share a label with another one: (where each label begins, and the end; the
// documents; their places). Without documents, they are the places.
template <class Number, class Document>
nb::tuple documents_in_sets(Array<const Number> labels,
                            std::optional<Array<const Document>> documents, const Stop* stop) {
  need(!documents || labels.size() == documents->size(), "a label for each document");
  const uint64_t all = labels.size();
  SharedLabels found = until_stopped(
      stop, [&](Stopper* stopping) { return shared_labels(labels.data(), all, stopping); });
  const size_t sets = found.sizes.size();
  Buffer<uint64_t> lims(sets + 1), members(found.count), places(documents ? found.count : 0);
  const SharedDocuments out{lims.get(), members.get(), documents ? places.get() : nullptr};
  const Document* const given = documents ? documents->data() : nullptr;
  until_stopped(stop, [&](Stopper* stopping) {
    group_documents(labels.data(), given, all, found, out, stopping);
  });
  const nb::object named = members.array(found.count);
  return nb::make_tuple(lims.array(sets + 1), named, documents ? places.array(found.count) : named);
}

// Finds places among ascending rows.
struct Index {
  Rows rows;
  std::vector<uint64_t> starts;
  RowIndex index{};

  explicit Index(Rows all) : rows(all) {
    constexpr unsigned kRowsTogether =
        4;  // as a power of two: those with the same leading bits, if they are spread evenly
    constexpr unsigned kMostBits = 28;
    const uint64_t count = count_of(rows);
    unsigned bits = 0;
    while (bits < kMostBits && count >> (bits + kRowsTogether + 1)) ++bits;
    starts.resize((size_t{1} << bits) + 1);
    index_until_stopped(rows, bits, starts.data(), nullptr, nullptr, "rows do not ascend");
    index = {rows.data(), words_in(rows), count, bits, starts.data()};
  }

  nb::object places(Rows some) {
    need_words(some, index.words);
    Buffer<uint64_t> out(count_of(some));
    need(without_gil([&] { return find_places(index, some.data(), count_of(some), out.get()); }),
         "a row is not among them");
    return out.array(count_of(some));
  }
};

// The place of the representative of each row of some sets; see Grouping.
nb::object group_greedily(Rows rows, Words lims, unsigned radius, const Stop* stop) {
  check_starts(lims, count_of(rows));
  need(!lims.data()[0], "the first set begins at the first row");
  Buffer<uint64_t> representatives(count_of(rows)), waiting(largest_of(lims, 0, lims.size() - 1));
  const Grouping sets{rows.data(), lims.data(), lims.size() - 1, radius, waiting.get()};
  const GroupRows group = pair_kernels().group[words_in(rows) / 2];
  until_stopped(stop, [&](Stopper* stopping) { group(sets, representatives.get(), stopping); });
  return representatives.array(count_of(rows));
}

}  // namespace

void bind_pairs(nb::module_& m) {
  m.def("index_rows", &index_rows, "rows"_array, "bucket_bits"_a, "starts"_array, "tags"_array,
        optional_stop());
  m.def("group_greedily", &group_greedily, "rows"_array, "lims"_array, "radius"_a, optional_stop());
  nb::class_<PairJoin>(m, "PairJoin")
      .def(nb::init<Rows, Words, TagColumn, Bytes, Rows, Rows, Numbers, Numbers, unsigned, unsigned,
                    uint64_t, uint64_t, std::optional<Side>>(),
           "rows"_array, "starts"_array, "tags"_array, "permutation"_array, "bucket_masks"_array,
           "tag_masks"_array, "flips"_a, "both"_a, "tag_bits"_a, "radius"_a, "first"_a, "end"_a,
           "opposite"_a.none() = nb::none())
      .def_ro("done", &PairJoin::done)
      .def("more", &PairJoin::more, "room"_a, optional_stop());
  nb::class_<Linking>(m, "Linking")
      .def(nb::init<MutableRows, Words, Tags, Bytes, Rows, Rows, Numbers, Numbers, unsigned,
                    unsigned>(),
           "rows"_array, "starts"_array, "tags"_array, "permutation"_array, "bucket_masks"_array,
           "tag_masks"_array, "flips"_a, "both"_a, "tag_bits"_a, "radius"_a)
      .def_ro("done", &Linking::done)
      .def("more", &Linking::more, "room"_a, optional_stop());
  nb::class_<Index>(m, "RowIndex")
      .def(nb::init<Rows>(), "rows"_array)
      .def("places", &Index::places, "rows"_array);
  nb::class_<Sets>(m, "Sets")
      .def(nb::init<uint64_t>(), "count"_a)
      .def("unite", &Sets::unite_all, "a"_array, "b"_array)
      .def("least", &Sets::least, "numbers"_array)
      .def("link_groups", &Sets::link_groups, "rows"_array, "members"_array, "lims"_array,
           "radius"_a, "most"_a, optional_stop())
      .def("names", &Sets::names, optional_stop());
  const auto documents_in = [&m](auto function) {
    m.def("documents_in_sets", function, "sets"_array, "documents"_array.none() = nb::none(),
          optional_stop());
  };
  documents_in(&documents_in_sets<uint32_t, uint32_t>);
  documents_in(&documents_in_sets<uint32_t, uint64_t>);
  documents_in(&documents_in_sets<uint64_t, uint32_t>);
  documents_in(&documents_in_sets<uint64_t, uint64_t>);
}

}  // namespace fpstore
