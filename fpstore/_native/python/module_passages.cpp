// The functions of the module that hash runs of words or of bytes.
#include "python/module.hpp"
#include "text/passages.hpp"

namespace fpstore {
namespace {

UnitTexts checked_texts(const nb::bytes& text, const Words& offsets, bool words) {
  const size_t count = count_of_spans(text.size(), offsets);
  return {data_of(text), offsets.data(), count, words};
}

void check_ascending(const Words& values) {
  for (size_t i = 1; i < values.size(); ++i)
    need(values.data()[i - 1] <= values.data()[i], "places ascend");
}

Lengths checked_lengths(size_t size, size_t gram) {
  need(gram >= 1 && gram <= size && size <= UINT32_MAX, "a gram has 1 unit to those of a window");
  return {size, gram};
}

// (hashes, places, units of each text)
nb::tuple grams(nb::bytes text, Words offsets, bool words, size_t size, size_t gram,
                const Stop* stop) {
  const UnitTexts texts = checked_texts(text, offsets, words);
  const Lengths lengths = checked_lengths(size, gram);
  std::vector<uint64_t> hashes, places;
  Buffer<uint64_t> units(texts.count);
  call(stop, [&](Stopper* stopping) {
    choose_grams(texts, lengths, &hashes, &places, units.get(), stopping);
  });
  return nb::make_tuple(array_of(hashes), array_of(places), units.array(texts.count));
}

// (keys, places, units of each text)
nb::tuple keys(nb::bytes text, Words offsets, bool words, size_t size, size_t gram, Words chosen,
               const Stop* stop) {
  const UnitTexts texts = checked_texts(text, offsets, words);
  const Lengths lengths = checked_lengths(size, gram);
  check_ascending(chosen);
  std::vector<uint64_t> made, places;
  Buffer<uint64_t> units(texts.count);
  call(stop, [&](Stopper* stopping) {
    window_keys(texts, lengths, chosen.data(), chosen.size(), &made, &places, units.get(),
                stopping);
  });
  return nb::make_tuple(array_of(made, 2), array_of(places), units.array(texts.count));
}

// (starts, ends, words of the text)
nb::tuple bounds(nb::bytes text, Words words) {
  check_ascending(words);
  Buffer<uint64_t> starts(words.size()), ends(words.size());
  std::fill_n(starts.get(), words.size(), text.size());
  std::fill_n(ends.get(), words.size(), text.size());
  const size_t count = call([&] {
    return word_bounds(data_of(text), text.size(), words.data(), words.size(), starts.get(),
                       ends.get());
  });
  return nb::make_tuple(starts.array(words.size()), ends.array(words.size()), count);
}

}  // namespace

void bind_passages(nb::module_& m) {
  m.def("choose_grams", &grams, "text"_a, "offsets"_array, "words"_a, "size"_a, "gram"_a,
        optional_stop());
  m.def("window_keys", &keys, "text"_a, "offsets"_array, "words"_a, "size"_a, "gram"_a,
        "chosen"_array, optional_stop());
  m.def("word_bounds", &bounds, "text"_a, "words"_array);
}

}  // namespace fpstore
