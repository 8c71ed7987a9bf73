// Runs of words or of bytes that texts have in common: their rolling hashes.
#pragma once
#include <vector>

#include "isa/runtime.hpp"

namespace fpstore {

// Texts in UTF-8, one after the other: text i is at [offsets[i], offsets[i + 1]). Their units are
// words, which white space of Unicode separates, or bytes. The place of a unit counts the units
// before it, in all texts.
struct UnitTexts {
  const uint8_t* bytes;
  const uint64_t* offsets;
  size_t count;
  bool words;
};

// A window is a run of `size` units in one text, and a gram one of `gram` units, at most as many.
struct Lengths {
  size_t size;
  size_t gram;
};

// Chooses grams of which every window has one: that with the least hash, the last of equal ones.
// So two windows of equal units have an equal gram at the same distance from their starts (S.
// Schleimer, D. Wilkerson, A. Aiken, Winnowing, SIGMOD 2003). Appends hashes and places of the
// chosen grams, and writes how many units each text has. A text without a window has no grams.
// Works in memory of 8 bytes for each word of the longest text (window_keys: 16).
void choose_grams(const UnitTexts& texts, const Lengths& lengths, std::vector<uint64_t>* hashes,
                  std::vector<uint64_t>* places, uint64_t* units, Stopper* stop);

// Appends the keys, two words each, and the places of the windows that have one of some grams,
// whose n places ascend. Equal windows have equal keys; others have by an accident of 122 bits.
void window_keys(const UnitTexts& texts, const Lengths& lengths, const uint64_t* grams, size_t n,
                 std::vector<uint64_t>* keys, std::vector<uint64_t>* places, uint64_t* units,
                 Stopper* stop);

// Writes where n words of a text start and end, in bytes, by their ascending numbers. Returns how
// many words the text has; what belongs to a word that is not there is not written.
size_t word_bounds(const uint8_t* text, size_t size, const uint64_t* words, size_t n,
                   uint64_t* starts, uint64_t* ends);

}  // namespace fpstore
