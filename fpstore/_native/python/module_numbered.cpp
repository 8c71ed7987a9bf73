// The functions of the module that sort rows of a key and a number of 32 or 64 bits.
#include "build/numbered.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

using NumberColumn = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls work with a row of `words` words, and a number of the type of an array.
template <class Work>
void with_types(unsigned words, bool large, Work work) {
  with_row(words, [&](auto row) { large ? work(row, uint64_t{}) : work(row, uint32_t{}); });
}

// Whether numbers have 64 bits.
template <class Some>
bool are_large(const Some& numbers) {
  if (numbers.dtype() != nb::dtype<uint32_t>() && numbers.dtype() != nb::dtype<uint64_t>())
    throw nb::type_error("numbers have 32 or 64 bits");
  return numbers.dtype() == nb::dtype<uint64_t>();
}

// The digit from bit `depth` on that has `places` values.
Digit digit_of(unsigned depth, size_t places, unsigned words) {
  unsigned bits = 1;
  while (bits < kMaxPartBits && size_t{1} << bits < places) ++bits;
  need(places == size_t{1} << bits && depth < 64 * words && depth % 64 <= 64 - bits,
       "a place for each value of 1 to 12 bits of a word");
  return Digit{depth, bits};
}

// Adds to counts how many keys have each value of a digit.
void count(Rows keys, unsigned depth, MutableWords counts, const Stop* stop) {
  const Digit by = digit_of(depth, counts.size(), words_in(keys));
  with_types(words_in(keys), false, [&](auto row, auto) {
    call(stop, [&](Stopper* stopping) {
      count_parts(rows<decltype(row)>(keys.data()), count_of(keys), by, counts.data(), stopping);
    });
  });
}

// Writes rows to their parts of out; at has the place of the next row of each part, and is moved
// on. Without numbers they are numbered from first on.
void scatter(Rows keys, std::optional<NumberColumn> numbers, uint64_t first, unsigned depth,
             MutableWords at, std::tuple<MutableRows, NumberColumn> out, const Stop* stop) {
  const unsigned words = words_in(keys);
  const Digit by = digit_of(depth, at.size(), words);
  const MutableRows& out_keys = std::get<0>(out);
  const NumberColumn& out_numbers = std::get<1>(out);
  need_words(out_keys, words);
  need(!numbers ||
           (numbers->size() == count_of(keys) && are_large(*numbers) == are_large(out_numbers)),
       "a number for each key, of the type of those of out");
  need(out_numbers.size() == count_of(out_keys), "the arrays of out have different lengths");
  bool fits = false;
  with_types(words, are_large(out_numbers), [&](auto row, auto number) {
    using Row = decltype(row);
    using Number = decltype(number);
    const NumberedSource<Row, Number> from{
        rows<Row>(keys.data()), numbers ? static_cast<const Number*>(numbers->data()) : nullptr,
        static_cast<Number>(first), count_of(keys)};
    const Numbered<Row, Number> to{rows<Row>(out_keys.data()),
                                   static_cast<Number*>(out_numbers.data())};
    call(stop, [&](Stopper* stopping) {
      fits = scatter_parts(from, by, at.data(), to, count_of(out_keys), stopping);
    });
  });
  need(fits, "a part has no room");
}

// Sorts successive parts of rows, which agree in the leading bits and end at ends.
void sort_parts(MutableRows keys, NumberColumn numbers, Words ends, unsigned bits,
                const Stop* stop) {
  const size_t n = count_of(keys);
  need(numbers.size() == n, "a number for each key");
  need(bits <= 64 * words_in(keys), "0 to all bits of a key");
  for (size_t i = 0; i < ends.size(); ++i)
    need(ends.data()[i] <= n && (!i || ends.data()[i] >= ends.data()[i - 1]), "ends must ascend");
  with_types(words_in(keys), are_large(numbers), [&](auto row, auto number) {
    const Numbered<decltype(row), decltype(number)> all{
        rows<decltype(row)>(keys.data()), static_cast<decltype(number)*>(numbers.data())};
    call(stop,
         [&](Stopper* stopping) { sort_numbered(all, ends.data(), ends.size(), bits, stopping); });
  });
}

// Whether no key is there twice, of keys in order.
bool are_distinct(Rows keys, const Stop* stop) {
  bool distinct = false;
  with_types(words_in(keys), false, [&](auto row, auto) {
    call(stop, [&](Stopper* stopping) {
      distinct = are_all_distinct(rows<decltype(row)>(keys.data()), count_of(keys), stopping);
    });
  });
  return distinct;
}

// Moves sorted rows together: distinct keys, how many numbers each has, and distinct numbers;
// returns (number of keys, of numbers).
nb::tuple group(MutableRows keys, NumberColumn numbers, MutableWords counts, const Stop* stop) {
  const size_t n = count_of(keys);
  need(numbers.size() == n && counts.size() >= n, "a number and a count for each key");
  size_t groups = 0, used = 0;
  with_types(words_in(keys), are_large(numbers), [&](auto row, auto number) {
    const Numbered<decltype(row), decltype(number)> all{
        rows<decltype(row)>(keys.data()), static_cast<decltype(number)*>(numbers.data())};
    call(stop, [&](Stopper* stopping) {
      groups = group_numbered(all, n, counts.data(), &used, stopping);
    });
  });
  return nb::make_tuple(groups, used);
}

}  // namespace

void bind_numbered(nb::module_& m) {
  const auto keys = "keys"_array;
  const auto numbers = "numbers"_array;
  m.def("count_parts", &count, keys, "depth"_a, "counts"_array, optional_stop());
  m.def("scatter_parts", &scatter, keys, "numbers"_array.none(), "first"_a, "depth"_a, "at"_array,
        "out"_a, optional_stop());
  m.def("sort_parts", &sort_parts, keys, numbers, "ends"_array, "bits"_a, optional_stop());
  m.def("are_distinct_keys", &are_distinct, keys, optional_stop());
  m.def("group_numbered", &group, keys, numbers, "counts"_array, optional_stop());
}

}  // namespace fpstore
