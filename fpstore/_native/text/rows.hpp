// Fingerprints of rows of texts, by what makes them of features.
#pragma once
#include <memory>
#include <new>

#include "text/features.hpp"

namespace fpstore {

// Texts, one after the other: text i is at [offsets[i], offsets[i + 1]). Row i has as many as there
// are fields, from i * fields on.
struct Texts {
  const CharMap& map;
  const uint8_t* bytes;
  const uint64_t* offsets;
  uint64_t rows;
};

// What became of a row of texts.
enum class TextState : uint8_t { known, empty, unknown };

// Where fingerprints go, words_in_all words each, and what became of each row. A row without
// features is empty, and its words are 0. One with lines of unknown form is unknown: others have to
// make it, or it is made again when the pages that it misses are there.
struct TextResults {
  uint64_t* rows;
  TextState* states;
  UnknownForms* unknown;
};

// Has a Hasher make the fingerprints: add(text, field) takes a text of a row, finish(row) makes the
// fingerprint of what was added and forgets it; false when that has no features. Works in memory of
// the longest text and its different shingles. False when memory runs out.
template <class Hasher, class... More>
bool make_rows(const Texts& texts, const TextOptions& options, const TextResults& results,
               More... more) {
  try {
    const auto hasher = std::make_unique<Hasher>(options, more...);  // larger than a stack may be
    NormalText normal;
    for (uint64_t i = 0; i < texts.rows; ++i) {
      uint64_t* const row = results.rows + i * options.words_in_all();
      const size_t before = results.unknown->lines.size();
      for (unsigned f = 0; f < options.field_count; ++f) {
        const uint64_t* const ends = texts.offsets + i * options.field_count + f;
        normal.set(texts.map, texts.bytes, ends[0], ends[1], results.unknown);
        if (results.unknown->lines.size() == before) hasher->add(normal, f);
      }
      const bool known = hasher->finish(row), readable = results.unknown->lines.size() == before;
      results.states[i] = !readable ? TextState::unknown
                          : known   ? TextState::known
                                    : TextState::empty;
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace fpstore
