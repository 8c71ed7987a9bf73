// Sealed LMDB files: the value of one key, found in the mapped file without LMDB or a lock (docs/format.md, "LMDB files").
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "format/row.hpp"

namespace fpstore {

// What the metadata and the seal of a file say; they have been checked.
struct SealedShape {
  uint64_t file_bytes;
  uint32_t page_bytes;
  uint64_t last_page;
  uint64_t root;
  unsigned depth;  // 0 where nothing is stored
  unsigned key_words;
  uint64_t longest;  // the most bytes of a value
  uint64_t entries;  // about so many keys
};

// A page is read with pread and compared with its checksum before anything in the mapped file leads to or through it: a disk that
// cannot read it is no signal then. A value on pages of its own is not read before: its record has a checksum of its own. Whatever
// is not as it should be, and a key that is not there, is no value: whoever asks then reads the file in a slower way that tells what
// is wrong. Values are copied out of the file, which may change at any time: what is checked of one is what is read of it. Threads may
// share it.
class SealedFile {
 public:
  // level_two has the checksums of the groups of checksums. The descriptor is borrowed: once it is closed, no further page is found.
  // whole: all pages have been checked.
  SealedFile(int descriptor, const SealedShape& shape, const uint8_t* level_two, uint64_t level_two_bytes, bool whole);
  ~SealedFile();
  SealedFile(const SealedFile&) = delete;
  SealedFile& operator=(const SealedFile&) = delete;

  // Copies the value of a key; false if it was not found. The key is a row of key_words words, of which the file has the bytes,
  // big-endian. Its number among all keys, if it is known, is where its place is noted: the next time it takes no walk.
  static constexpr uint64_t kNoNumber = UINT64_MAX;
  bool read(const uint64_t* key, uint64_t number, std::vector<uint8_t>* value) const;
  // Fetches ahead what read() will read, if the place is noted.
  void fetch(uint64_t number) const;
  const SealedShape& shape() const { return shape_; }

 private:
  static constexpr uint64_t kChunkBytes = 4096, kGroupChunks = 512, kMostPlaces = uint64_t{1} << 22;

  struct Node {
    const uint8_t* node = nullptr;
    const uint8_t* page_end = nullptr;
  };
  Node walk(const uint64_t* key) const;
  bool copy_value(const Node& of, std::vector<uint8_t>* value) const;
  const uint8_t* checked_page(uint64_t page, unsigned flags, unsigned* nodes) const;
  bool check_chunk(uint64_t chunk) const;
  const uint64_t* group_sums(uint64_t group) const;
  uint64_t used() const { return (shape_.last_page + 1) * shape_.page_bytes; }
  uint64_t chunks() const { return (used() + kChunkBytes - 1) / kChunkBytes; }
  uint64_t groups() const { return (chunks() + kGroupChunks - 1) / kGroupChunks; }

  int descriptor_;
  bool whole_;
  SealedShape shape_;
  uint64_t level_one_ = 0;  // where the checksums of the chunks begin
  const uint8_t* data_ = nullptr;
  std::unique_ptr<uint64_t[]> level_two_;
  std::unique_ptr<std::atomic<uint8_t>[]> checked_;         // of each chunk
  std::unique_ptr<std::atomic<const uint64_t*>[]> sums_;  // of each group, once they have been read
  // Where the nodes of keys begin in the file, 0 where that is not known, by the low bits of their numbers. Memory that is never
  // written takes none.
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<std::atomic<uint64_t>[], Free> places_;
  uint64_t place_mask_ = 0;
};

}  // namespace fpstore
