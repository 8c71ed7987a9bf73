// Joins of sorted rows: the pairs within a radius.
#include "pairs/request.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using Tags = nb::ndarray<uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using TagColumn = nb::ndarray<const uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr unsigned kMostJoinBits = 24;  // of a bucket number: the starts take a few cache lines of each table

// Writes where each bucket of rows begins, and the tags of all rows.
void index_rows(Rows rows, unsigned bucket_bits, MutableWords starts, Tags tags) {
  if (bucket_bits > kMostJoinBits) throw nb::value_error("too many bits for the number of a bucket");
  if (starts.size() != (size_t{1} << bucket_bits) + 1) throw nb::value_error("starts has a place for each bucket, and one more");
  if (tags.size() < count_of(rows) + kSectionRoom / 2) throw nb::value_error("tags is too short");
  bool ordered;
  {
    ReleasedGil released;
    ordered = index_buckets(rows.data(), words_in(rows), count_of(rows), bucket_bits, starts.data(), tags.data());
  }
  if (!ordered) throw nb::value_error("rows are not in the order of their buckets");
}

// Permuted rows in the order of their buckets, with what index_rows wrote.
struct Side {
  Rows rows;
  Words starts;
  TagColumn tags;

  JoinSide view() const { return {rows.data(), starts.data(), reinterpret_cast<const uint8_t*>(tags.data())}; }
  unsigned words() const { return words_in(rows); }
};

void check_starts(const Words& starts, size_t rows) {
  if (starts.size() < 2 || starts.data()[starts.size() - 1] != rows) throw nb::value_error("the last start is the number of rows");
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    if (starts.data()[i] > starts.data()[i + 1]) throw nb::value_error("starts descend");
}

unsigned bits_of_buckets(const Words& starts) {
  unsigned bits = 0;
  while (bits < kMostJoinBits && (size_t{1} << bits) + 1 < starts.size()) ++bits;
  if ((size_t{1} << bits) + 1 != starts.size()) throw nb::value_error("the number of buckets is a power of two");
  return bits;
}

uint16_t tag_mask_of(unsigned tag_bits) { return static_cast<uint16_t>(0xFFFFu << (kTagBits - tag_bits)); }

// (a, b, distances) of more pairs, at most `room`.
template <class Add>
nb::tuple some_pairs(size_t room, unsigned words, const Stop* stop, Add add) {
  room = std::max<size_t>(room, kTagsAtOnce);
  Buffer<uint64_t> a(room * words), b(room * words);
  Buffer<uint16_t> distances(room);
  PairSink sink{a.get(), b.get(), distances.get(), 0, room};
  Stopper stopping = stopper(stop);
  {
    ReleasedGil released;
    add(&sink, &stopping);
  }
  if (stopping.ended) {
    note_interrupted();
    throw nb::python_error();
  }
  return nb::make_tuple(a.array(sink.count, words), b.array(sink.count, words), distances.array(sink.count));
}

Side make_side(Rows rows, Words starts, TagColumn tags) {
  words_in(rows);
  const size_t n = count_of(rows);
  check_starts(starts, n);
  if (tags.size() < n + kSectionRoom / 2) throw nb::value_error("tags is too short");
  return Side{rows, starts, tags};
}

struct PairJoin {
  nb::object left, right;  // keep the arrays alive
  std::vector<Meeting> meetings;
  Join join{};
  JoinPlace place{};
  unsigned words;
  bool done = false;

  // The masks are rows of all tables up to this one, the numbers those of these tables.
  PairJoin(nb::object left_side, nb::object right_side, Bytes permutation, Rows bucket_masks, Rows tag_masks, std::vector<unsigned> flips,
           std::vector<unsigned> both, unsigned tag_bits, unsigned radius, uint64_t first, uint64_t end)
      : left(left_side), right(right_side.is_none() ? left_side : right_side) {
    const Side &l = nb::cast<const Side&>(left), &r = nb::cast<const Side&>(right);
    words = l.words();
    const size_t tables = flips.size();
    if (r.words() != words || r.starts.size() != l.starts.size()) throw nb::value_error("the sides are not alike");
    if (words_of(static_cast<unsigned>(permutation.size())) != words) throw nb::value_error("rows of another width");
    if (!tables || both.size() != tables || count_of(bucket_masks) != tables || count_of(tag_masks) != tables)
      throw nb::value_error("one of each for each table");
    need_words(bucket_masks, words);
    need_words(tag_masks, words);
    join.bucket_bits = bits_of_buckets(l.starts);
    if (tag_bits > kTagBits || first > end || end > l.starts.size() - 1) throw nb::value_error("no such buckets or tags");
    for (size_t i = 0; i < tables; ++i) {
      Meeting m{};
      memcpy(m.bucket_mask, bucket_masks.data() + i * words, 8 * words);
      memcpy(m.tag_mask, tag_masks.data() + i * words, 8 * words);
      m.flips = flips[i];
      m.both = both[i];
      if (m.both < m.flips) throw nb::value_error("both is at least flips");
      meetings.push_back(m);
    }
    join.left = l.view();
    join.right = r.view();
    join.within = right_side.is_none();
    join.meetings = meetings.data();
    join.table = static_cast<unsigned>(tables - 1);
    join.radius = radius;
    join.tag_mask = tag_mask_of(tag_bits);
    join.inverse = permutation_of(permutation, true);
    place.end = end;
    place.bucket = first;
  }

  nb::tuple more(size_t room, const Stop* stop) {
    return some_pairs(room, words, stop, [&](PairSink* sink, Stopper* stopping) {
      const PairKernels& k = pair_kernels();
      done = (words == 1 ? k.join_ones : words == 2 ? k.join_pairs : k.join_fours)(join, &place, sink, stopping);
    });
  }
};

// Connects the rows of a set that are near each other in one table; rows and tags change places.
struct Linking {
  MutableRows rows;
  Words starts;
  Tags tags;
  Buffer<uint64_t> live, stack;
  LinkTable table{};
  LinkPlace place{};
  unsigned words;
  bool done = false;

  Linking(MutableRows all, Words begins, Tags short_tags, Bytes permutation, unsigned flips, unsigned both, unsigned tag_bits,
          unsigned radius)
      : rows(all), starts(begins), tags(short_tags), live(begins.size()), stack(count_of(all)), words(words_in(all)) {
    const size_t n = count_of(rows), buckets = starts.size() - 1;
    check_starts(starts, n);
    if (tags.size() < n + kSectionRoom / 2) throw nb::value_error("tags is too short");
    if (tag_bits > kTagBits || both < flips) throw nb::value_error("no such tags, or both is less than flips");
    if (words_of(static_cast<unsigned>(permutation.size())) != words) throw nb::value_error("rows of another width");
    for (size_t b = 0; b < buckets; ++b) live.get()[b] = starts.data()[b + 1];
    table = {rows.data(), starts.data(), tags.data(), live.get(), stack.get(), bits_of_buckets(starts), flips, both, radius,
             tag_mask_of(tag_bits), permutation_of(permutation, true)};
    place.end = buckets;
  }

  nb::tuple more(size_t room, const Stop* stop) {
    return some_pairs(room, words, stop, [&](PairSink* sink, Stopper* stopping) {
      const PairKernels& k = pair_kernels();
      done = (words == 1 ? k.link_ones : words == 2 ? k.link_pairs : k.link_fours)(table, &place, sink, stopping);
    });
  }
};

// Sets of the numbers 0, 1, ..., each of which is its own at first.
struct Sets {
  std::vector<uint32_t> few;
  std::vector<uint64_t> many;
  uint64_t count;

  explicit Sets(uint64_t n) : count(n) {
    if (n <= UINT32_MAX) few.resize(n);
    else many.resize(n);
    for (uint64_t i = 0; i < few.size(); ++i) few[i] = static_cast<uint32_t>(i);
    for (uint64_t i = 0; i < many.size(); ++i) many[i] = i;
  }

  void unite_all(Words a, Words b) {
    if (a.size() != b.size()) throw nb::value_error("columns of different lengths");
    for (size_t i = 0; i < a.size(); ++i)
      if (a.data()[i] >= count || b.data()[i] >= count) throw nb::index_error("no such number");
    ReleasedGil released;
    if (few.size() == count) unite(few.data(), a.data(), b.data(), a.size());
    else unite(many.data(), a.data(), b.data(), a.size());
  }

  // The least number of the set of each; the sets end with it.
  nb::object names() {
    const uint64_t n = count;
    count = 0;
    {
      ReleasedGil released;
      name_sets(few.data(), few.size());
      name_sets(many.data(), many.size());
    }
    return few.size() == n ? owned(std::move(few)) : owned(std::move(many));
  }

  template <class Number>
  static nb::object owned(std::vector<Number>&& numbers) {
    auto* const kept = new std::vector<Number>(std::move(numbers));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, Number, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
  }
};

}  // namespace

void bind_pairs(nb::module_& m) {
  m.def("index_rows", &index_rows, "rows"_a, "bucket_bits"_a, "starts"_a, "tags"_a);
  m.attr("MOST_JOIN_BITS") = kMostJoinBits;
  m.attr("TAG_ROOM") = kSectionRoom / 2;
  nb::class_<Side>(m, "JoinSide")
      .def("__init__", [](Side* self, Rows rows, Words starts, TagColumn tags) { new (self) Side(make_side(rows, starts, tags)); },
           "rows"_a, "starts"_a, "tags"_a);
  nb::class_<PairJoin>(m, "PairJoin")
      .def(nb::init<nb::object, nb::object, Bytes, Rows, Rows, std::vector<unsigned>, std::vector<unsigned>, unsigned, unsigned, uint64_t,
                    uint64_t>(),
           "left"_a, "right"_a.none(), "permutation"_a, "bucket_masks"_a, "tag_masks"_a, "flips"_a, "both"_a, "tag_bits"_a, "radius"_a,
           "first"_a, "end"_a)
      .def_ro("done", &PairJoin::done)
      .def("more", &PairJoin::more, "room"_a, "stop"_a.none() = nb::none());
  nb::class_<Linking>(m, "Linking")
      .def(nb::init<MutableRows, Words, Tags, Bytes, unsigned, unsigned, unsigned, unsigned>(), "rows"_a, "starts"_a, "tags"_a,
           "permutation"_a, "flips"_a, "both"_a, "tag_bits"_a, "radius"_a)
      .def_ro("done", &Linking::done)
      .def("more", &Linking::more, "room"_a, "stop"_a.none() = nb::none());
  nb::class_<Sets>(m, "Sets")
      .def(nb::init<uint64_t>(), "count"_a)
      .def("unite", &Sets::unite_all, "a"_a, "b"_a)
      .def("names", &Sets::names);
}

}  // namespace fpstore
