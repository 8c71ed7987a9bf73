// What the bindings of tables and of their probers share.
#pragma once
#include "python/module.hpp"
#include "search/prober.hpp"

namespace fpstore {

inline Queries queries_of(const Rows& fingerprints, unsigned width) {
  need_words(fingerprints, words_of(width));
  need(count_of(fingerprints) <= UINT32_MAX, "at most 2^32 - 1 fingerprints a call");
  for (size_t i = 0; width < 64 && i < count_of(fingerprints); ++i)
    need(!(fingerprints.data()[i] & ~top_mask(width)), "a fingerprint has bits below its width");
  return {fingerprints.data(), count_of(fingerprints)};
}

// The initialiser of a mapped file, which keeps the mapping alive.
template <class Bound>
void bind_open(Bound& bound) {
  using Mapped = typename Bound::Type;
  bound.def(
      "__init__",
      [](Mapped* self, Bytes data, std::string path) {
        call([&] { new (self) Mapped(span_of(data), std::move(path)); });
      },
      "data"_array, "path"_a, nb::keep_alive<1, 2>());
}

// Tells the logger which filters look-ups found damaged, each once.
inline void log_damaged_filters(const AnyProber& prober) {
  while (const Filter* filter = prober.next_damaged_filter())
    nb::module_::import_("fpstore.base.diagnostics")
        .attr("notify_unused_filter")(filter->file.path);
}

}  // namespace fpstore
