// Joins of sorted rows: the pairs within a radius.
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "columns/column_header.hpp"
#include "pairs/search.hpp"
#include "pairs/sets.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using Tags = Array<uint16_t>;
using TagColumn = Array<const uint16_t>;

// Writes where each bucket begins, and the tags unless they are null.
void index_call(const Rows& rows, unsigned bucket_bits, uint64_t* starts, uint16_t* tags,
                const Stop* stop, const char* unordered) {
  const unsigned words = words_in(rows);
  need(call(stop,
            [&](Stopper* stopping) {
              return index_buckets(rows.data(), words, count_of(rows), bucket_bits, starts, tags,
                                   stopping);
            }),
       unordered);
}

// Writes where each bucket of rows begins, and the tags of all rows.
void index_rows(Rows rows, unsigned bucket_bits, MutableWords starts, Tags tags, const Stop* stop) {
  need(bucket_bits <= kMaxBucketBits, "too many bits for the number of a bucket");
  need(starts.size() == (size_t{1} << bucket_bits) + 1,
       "starts has a place for each bucket, and one more");
  need(tags.size() >= count_of(rows) + kSectionRoom / 2, "tags is too short");
  index_call(rows, bucket_bits, starts.data(), tags.data(), stop,
             "rows are not in the order of their buckets");
}

using Side = std::tuple<Rows, Words, TagColumn>;
using PartedSide = std::tuple<Rows, Words, bool>;

template <class SomeRows, class SomeTags>
auto indexed(const SomeRows& rows, const Words& starts, const SomeTags& tags) {
  using Word = std::remove_pointer_t<decltype(rows.data())>;
  using Tag = std::remove_pointer_t<decltype(tags.data())>;
  return IndexedRows<Word, Tag>{
      rows.data(), count_of(rows), words_in(rows), span_of(starts), {tags.data(), tags.size()}};
}

// Few pairs do not keep the room of many.
template <class T>
nb::object fitted(Buffer<T>* column, size_t count, size_t room, unsigned each = 1) {
  if (count > room / 2) return column->array(count, each);
  Buffer<T> less(count * each);
  memcpy(less.get(), column->get(), sizeof(T) * count * each);
  return less.array(count, each);
}

// (a, b, distances) of about `room` pairs at most.
nb::tuple more(PairSearch& search, size_t room, const Stop* stop) {
  need(!(room >> 32), "room for too many pairs");
  room = std::max<size_t>(room, kTagsAtOnce);
  const unsigned words = search.words();
  Buffer<uint64_t> a(room * words), b(room * words);
  Buffer<uint16_t> distances(room);
  PairSink sink{a.get(), b.get(), distances.get(), 0, room};
  call(stop, [&](Stopper* stopping) { search.more(&sink, stopping); });
  return nb::make_tuple(fitted(&a, sink.count, room, words), fitted(&b, sink.count, room, words),
                        fitted(&distances, sink.count, room));
}

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
    call([&] {
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
    call([&] {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const uint64_t number = numbers.data()[i];
        out.get()[i] = is_small() ? least_of_set(few.get(), static_cast<uint32_t>(number))
                                  : least_of_set(many.get(), number);
      }
    });
    return out.array(numbers.size());
  }

  // Whether each group was left as it is; see LinkGroups.
  nb::object link_groups(Rows rows, Words members, Words lims, unsigned radius, uint64_t most,
                         const Stop* stop) {
    const InUse used(busy);
    check_starts(span_of(lims), members.size());
    need(count_of(rows) == members.size(), "a row for each member");
    check_numbers(members);
    Buffer<uint8_t> left(lims.size() - 1);
    const LinkGroups groups{
        rows.data(), words_in(rows), members.data(), lims.data(), lims.size() - 1, radius, most};
    call(stop, [&](Stopper* stopping) {
      if (is_small())
        fpstore::link_groups(few.get(), groups, left.get(), stopping);
      else
        fpstore::link_groups(many.get(), groups, left.get(), stopping);
    });
    return left.array(lims.size() - 1);
  }

  // The least number of the set of each; the sets end with it.
  nb::object names(const Stop* stop) {
    const InUse used(busy);
    const bool small = is_small();
    const uint64_t n = std::exchange(count, 0);
    call(stop, [&](Stopper* stopping) {
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
  SharedLabels found =
      call(stop, [&](Stopper* stopping) { return shared_labels(labels.data(), all, stopping); });
  const size_t sets = found.sizes.size();
  Buffer<uint64_t> lims(sets + 1), members(found.count), places(documents ? found.count : 0);
  const SharedDocuments out{lims.get(), members.get(), documents ? places.get() : nullptr};
  const Document* const given = documents ? documents->data() : nullptr;
  call(stop, [&](Stopper* stopping) {
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
    constexpr unsigned kMaxBits = 28;
    const uint64_t count = count_of(rows);
    unsigned bits = 0;
    while (bits < kMaxBits && count >> (bits + kRowsTogether + 1)) ++bits;
    starts.resize((size_t{1} << bits) + 1);
    index_call(rows, bits, starts.data(), nullptr, nullptr, "rows do not ascend");
    index = {rows.data(), words_in(rows), count, bits, starts.data()};
  }

  nb::object places(Rows some) {
    need_words(some, index.words);
    Buffer<uint64_t> out(count_of(some));
    need(call([&] { return find_places(index, some.data(), count_of(some), out.get()); }),
         "a row is not among them");
    return out.array(count_of(some));
  }
};

// The place of the representative of each row of some sets; see Grouping.
nb::object group_greedily(Rows rows, Words lims, unsigned radius, const Stop* stop) {
  check_starts(span_of(lims), count_of(rows));
  need(!lims.data()[0], "the first set begins at the first row");
  Buffer<uint64_t> representatives(count_of(rows)),
      waiting(largest_bucket(span_of(lims), 0, lims.size() - 1));
  const Grouping sets{rows.data(), lims.data(), lims.size() - 1, radius, waiting.get()};
  const GroupRows group = pair_kernels().group[words_in(rows) / 2];
  call(stop, [&](Stopper* stopping) { group(sets, representatives.get(), stopping); });
  return representatives.array(count_of(rows));
}

}  // namespace

void bind_pairs(nb::module_& m) {
  m.def("index_rows", &index_rows, "rows"_array, "bucket_bits"_a, "starts"_array, "tags"_array,
        optional_stop());
  m.def("group_greedily", &group_greedily, "rows"_array, "lims"_array, "radius"_a, optional_stop());
  nb::class_<PairSearch>(m, "PairSearch")
      .def_prop_ro("done", &PairSearch::done)
      .def("more", &more, "room"_a, optional_stop());
  nb::class_<JoinRules>(m, "JoinRules")
      .def(
          "__init__",
          [](JoinRules* self, const Bytes& permutation, const Rows& bucket_masks,
             const Rows& tag_masks, const std::vector<unsigned>& flips,
             const std::vector<unsigned>& both, unsigned tag_bits, unsigned radius) {
            new (self)
                JoinRules(span_of(permutation), {bucket_masks.data(), bucket_masks.size()},
                          {tag_masks.data(), tag_masks.size()}, flips, both, tag_bits, radius);
          },
          "permutation"_array, "bucket_masks"_array, "tag_masks"_array, "flips"_a, "both"_a,
          "tag_bits"_a, "radius"_a);
  nb::class_<PairJoin, PairSearch>(m, "PairJoin")
      .def(
          "__init__",
          [](PairJoin* self, Rows rows, Words starts, TagColumn tags, const JoinRules& rules,
             uint64_t first, uint64_t end, const std::optional<Side>& opposite) {
            std::optional<JoinedRows> other;
            if (opposite) {
              const auto& [those, their_starts, their_tags] = *opposite;
              other = indexed(those, their_starts, their_tags);
            }
            new (self) PairJoin(indexed(rows, starts, tags), rules, first, end, other);
          },
          "rows"_array, "starts"_array, "tags"_array, "rules"_a, "first"_a, "end"_a,
          "opposite"_a.none() = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 8>());
  nb::class_<Linking, PairSearch>(m, "Linking")
      .def(
          "__init__",
          [](Linking* self, MutableRows rows, Words starts, Tags tags, const JoinRules& rules) {
            new (self) Linking(indexed(rows, starts, tags), rules);
          },
          "rows"_array, "starts"_array, "tags"_array, "rules"_a, nb::keep_alive<1, 2>(),
          nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>());
  nb::class_<PartSearch, PairSearch>(m, "PartSearch")
      .def(
          "__init__",
          [](PartSearch* self, const std::vector<PartedSide>& sides, const JoinRules& rules,
             unsigned bucket_bits, unsigned part_bits, bool linked) {
            need(!sides.empty(), "one set or two");
            std::vector<PartedRows> parted;
            for (const auto& [rows, part_starts, ordered] : sides)
              parted.push_back(
                  {rows.data(), count_of(rows), words_in(rows), span_of(part_starts), ordered});
            new (self) PartSearch(std::move(parted), rules, bucket_bits, part_bits, linked);
          },
          "sides"_a, "rules"_a, "bucket_bits"_a, "part_bits"_a, "linked"_a, nb::keep_alive<1, 2>(),
          nb::keep_alive<1, 3>());
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
