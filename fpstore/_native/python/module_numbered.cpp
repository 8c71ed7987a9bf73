// The functions of the module that sort rows of a key and a number of 32 bits.
#include "build/numbered.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

// The digit from a bit on that has so many values.
Digit digit_of(unsigned depth, size_t places) {
  unsigned bits = 1;
  while (bits < kMostPartBits && size_t{1} << bits < places) ++bits;
  if (places != size_t{1} << bits || depth > 64 - bits) throw nb::value_error("a place for each value of 1 to 12 bits");
  return Digit{depth, bits};
}

// Adds to counts how many keys have each value of a digit.
void count(Words keys, unsigned depth, MutableWords counts, const Stop* stop) {
  const Digit by = digit_of(depth, counts.size());
  until_stopped(stop, [&](Stopper* stopping) {
    count_parts(keys.data(), keys.size(), by, counts.data(), stopping);
  });
}

// Writes rows to their parts of out; at has the place of the next row of each part, and is moved on. Without numbers they are numbered
// from first on.
void scatter(Words keys, std::optional<Counts> numbers, uint32_t first, unsigned depth, MutableWords at,
             std::tuple<MutableWords, MutableCounts> out, const Stop* stop) {
  const Digit by = digit_of(depth, at.size());
  const MutableWords& out_keys = std::get<0>(out);
  const MutableCounts& out_numbers = std::get<1>(out);
  if (numbers && numbers->size() != keys.size()) throw nb::value_error("a number for each key");
  if (out_numbers.size() != out_keys.size()) throw nb::value_error("the arrays of out have different lengths");
  const NumberedSource from{keys.data(), numbers ? numbers->data() : nullptr, first, keys.size()};
  bool fits = false;
  until_stopped(stop, [&](Stopper* stopping) {
    fits = scatter_parts(from, by, at.data(), Numbered{out_keys.data(), out_numbers.data()}, out_keys.size(), stopping);
  });
  if (!fits) throw nb::value_error("a part has no room");
}

// Sorts successive parts of rows, which agree in the leading bits and end at ends.
void sort_parts(MutableWords keys, MutableCounts numbers, Words ends, unsigned bits, const Stop* stop) {
  if (numbers.size() != keys.size()) throw nb::value_error("a number for each key");
  if (bits > 64) throw nb::value_error("0 to 64 bits");
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends.data()[i] > keys.size() || (i && ends.data()[i] < ends.data()[i - 1])) throw nb::value_error("ends must ascend");
  until_stopped(stop, [&](Stopper* stopping) {
    sort_numbered(Numbered{keys.data(), numbers.data()}, ends.data(), ends.size(), bits, stopping);
  });
}

// Whether no key is there twice, of keys in order.
bool are_distinct(Words keys, const Stop* stop) {
  bool distinct = false;
  until_stopped(stop, [&](Stopper* stopping) { distinct = are_all_distinct(keys.data(), keys.size(), stopping); });
  return distinct;
}

// Moves sorted rows together: distinct keys, how many numbers each has, and distinct numbers; returns (number of keys, of numbers).
nb::tuple group(MutableWords keys, MutableCounts numbers, MutableWords counts, const Stop* stop) {
  if (numbers.size() != keys.size() || counts.size() < keys.size()) throw nb::value_error("a number and a count for each key");
  size_t groups = 0, used = 0;
  until_stopped(stop, [&](Stopper* stopping) {
    groups = group_numbered(Numbered{keys.data(), numbers.data()}, keys.size(), counts.data(), &used, stopping);
  });
  return nb::make_tuple(groups, used);
}

}  // namespace

void bind_numbered(nb::module_& m) {
  const auto keys = nb::arg("keys").noconvert();
  const auto numbers = nb::arg("numbers").noconvert();
  m.def("count_parts", &count, keys, "depth"_a, nb::arg("counts").noconvert(), "stop"_a = nb::none());
  m.def("scatter_parts", &scatter, keys, nb::arg("numbers").noconvert().none(), "first"_a, "depth"_a, nb::arg("at").noconvert(), "out"_a,
        "stop"_a = nb::none());
  m.def("sort_parts", &sort_parts, keys, numbers, nb::arg("ends").noconvert(), "bits"_a, "stop"_a = nb::none());
  m.def("are_distinct_keys", &are_distinct, keys, "stop"_a = nb::none());
  m.def("group_numbered", &group, keys, numbers, nb::arg("counts").noconvert(), "stop"_a = nb::none());
}

}  // namespace fpstore
