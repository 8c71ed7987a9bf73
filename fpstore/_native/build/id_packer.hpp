// Packs the ids of successive rows into the records of their blocks.
#pragma once
#include <vector>

#include "build/merge.hpp"
#include "build/sealed_encode.hpp"
#include "format/errors.hpp"

namespace fpstore {

// feed() rows in order of their keys. The rows of a block that is not complete are buffered.
class IdPacker {
 public:
  // seed is that of a record under the key 0.
  IdPacker(unsigned key_words, uint64_t seed) : words_(checked_words(key_words)), seed_(seed) {}

  unsigned key_words() const { return words_; }
  size_t buffered_rows() const { return counts_.size(); }

  // Takes more rows, and the entry counts of the blocks that are complete with them: no more
  // entries than rows are buffered or come. Each row has an id. The records go to a file, each
  // under the last key of its block; false if such a key is not above the key before.
  bool feed(const Groups& rows, const uint32_t* entry_counts, size_t blocks, SealedEncoder* out);

 private:
  void buffer_rows(const Groups& rows, size_t* row, size_t* id, size_t n);
  bool pack(const uint64_t* last_key, const uint64_t* counts, const uint64_t* ids, size_t n,
            SealedEncoder* out);

  const unsigned words_;
  const uint64_t seed_;
  std::vector<uint64_t> keys_, counts_, ids_;  // of the buffered rows
  std::vector<uint64_t> lims_;                 // of the ids of a block
  std::vector<uint8_t> record_;
};

}  // namespace fpstore
