// Packs the ids of successive rows into the records of their blocks.
#pragma once
#include <vector>

#include "build/merge.hpp"
#include "build/sealed_encode.hpp"

namespace fpstore {

// feed() rows in order of their keys. The rows of a block that is not complete are buffered. The
// records go to a file, each under the last key of its block.
class IdPacker {
 public:
  // seed is that of a record under the key 0. The file outlives the packer.
  IdPacker(SealedEncoder* file, uint64_t seed) : file_(file), seed_(seed) {}

  const SealedEncoder& file() const { return *file_; }
  size_t buffered_rows() const { return counts_.size(); }

  // Takes more rows, and the entry counts of the blocks that are complete with them: no more
  // entries than rows are buffered or come. Each row has an id. Returns nullptr, or the last key of
  // a block if it is not above the last key of the file: then nothing more can be fed.
  const uint64_t* feed(const Groups& rows, const uint32_t* entry_counts, size_t blocks);

 private:
  void buffer_rows(const Groups& rows, size_t* row, size_t* id, size_t n);

  SealedEncoder* const file_;
  const uint64_t seed_;
  std::vector<uint64_t> keys_, counts_, ids_;  // of the buffered rows
  std::vector<uint8_t> record_;
};

}  // namespace fpstore
