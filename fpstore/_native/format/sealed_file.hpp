// Sealed LMDB files, mapped and read without LMDB (docs/format.md, "LMDB files"): values of keys,
// one or many, and ranges of keys.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "format/lmdb_page.hpp"
#include "format/row.hpp"
#include "isa/runtime.hpp"

namespace fpstore {

// What is wrong with a file; error is that of the system where it could not read a place, and 0
// elsewhere.
struct SealedError {
  std::string message, path;
  uint64_t expected, got;
  int error;
};

// A page is read with pread and compared with its checksum before anything in the mapped file leads
// to or through it: a disk that cannot read it is no signal then. A value on pages of its own is
// not read before: its record has a checksum of its own. Whatever is not as it should be is a
// SealedError. The file may change at any time: what bounds an access is read once. Threads may
// share it.
class SealedFile {
 public:
  // Checks the metadata and the seal of an open file, and takes over its descriptor. A key has
  // key_words words. A value of more than `longest` bytes is damage.
  SealedFile(int descriptor, std::string path, unsigned key_words, uint64_t longest);
  ~SealedFile();
  SealedFile(const SealedFile&) = delete;
  SealedFile& operator=(const SealedFile&) = delete;

  unsigned key_words() const { return key_words_; }
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t used() const { return (last_page_ + 1) * page_bytes_; }  // bytes of pages
  uint64_t padding_bytes() const { return level_one_ - used(); }    // zeros behind them
  uint64_t entries() const {
    return entries_;
  }  // keys, as the file says: not more than fit into the pages
  uint64_t digest() const { return digest_; }

  // A value in the mapped file; nullptr where the key has none.
  struct Value {
    const uint8_t* data;
    uint64_t size;
  };
  // The value of a key, a row of key_words words; the file has its bytes, big-endian. The number of
  // the key among all keys, if it is known, says where its place is noted: the next look-up walks
  // no tree.
  static constexpr uint64_t kNoNumber = UINT64_MAX;
  Value find(const uint64_t* key, uint64_t number) const;
  // Fetches ahead what find() will read, if the place is noted.
  void fetch(uint64_t number) const;
  // The stopper may end the calls below early, and remembers that it did.
  //
  // The values of all keys, or of the first keys whose values have `enough` bytes together.
  // Ascending keys are found fastest.
  void find_many(const uint64_t* keys, const uint64_t* numbers, size_t count, uint64_t enough,
                 Stopper* stop, std::vector<Value>* values) const;
  // The values and the rows of at most `most` keys, from one key to another, both included.
  void range(const uint64_t* first, const uint64_t* last, uint64_t most, Stopper* stop,
             std::vector<Value>* values, std::vector<uint64_t>* keys) const;
  // Checks every page and every checksum.
  void check_all(Stopper* stop);

 private:
  static constexpr uint64_t kMaxPlaces = uint64_t{1} << 22;
  static constexpr unsigned kMaxDepth = 32;

  // On the way from the root to a node of a leaf: a page, how many nodes it has, and which of them
  // leads on.
  struct Step {
    const uint8_t* page = nullptr;
    unsigned count = 0, at = 0;
  };
  struct Way {
    Step steps[kMaxDepth];
  };
  [[noreturn]] void fail(const std::string& what, uint64_t got, uint64_t expected = 0,
                         int error = 0) const;
  [[noreturn]] void damaged(uint64_t page) const;
  void read_at(uint64_t at, uint8_t* to, uint64_t count) const;
  void open_metadata();
  void open_seal();
  void release();
  Value noted(const uint64_t* key, uint64_t number) const;
  Value look_up(const uint64_t* key, uint64_t number, Way* way) const;
  bool seek(const uint64_t* key, Way* way) const;
  bool seek_inside(Step* leaf, const uint64_t* key) const;
  bool next(Way* way) const;
  bool is_inside(const Step& leaf, const uint64_t* key) const;
  uint64_t page_of(const uint8_t* node) const {
    return static_cast<uint64_t>(node - data_) / page_bytes_;
  }
  const uint8_t* node(const Step& step, unsigned i) const;
  unsigned nodes_up_to(const Step& step, bool is_leaf, const uint64_t* key) const;
  uint64_t child(const Step& step) const;
  Value value_of(const uint8_t* node) const;
  Step checked_page(uint64_t page, unsigned flags) const;
  void check_chunk(uint64_t chunk) const;
  const uint64_t* group_sums(uint64_t group) const;
  uint64_t chunks() const { return (used() + lmdb::kChunkBytes - 1) / lmdb::kChunkBytes; }
  uint64_t groups() const { return (chunks() + lmdb::kGroupChunks - 1) / lmdb::kGroupChunks; }
  uint64_t chunk_bytes(uint64_t chunk) const {
    const uint64_t left = used() - chunk * lmdb::kChunkBytes;
    return left < lmdb::kChunkBytes ? left : lmdb::kChunkBytes;
  }

  int descriptor_ = -1;
  std::string path_;
  unsigned key_words_;
  uint64_t longest_, file_bytes_ = 0, last_page_ = 0, root_ = 0, entries_ = 0, digest_ = 0;
  uint32_t page_bytes_ = 0;
  unsigned depth_ = 0;      // 0 where nothing is stored
  uint64_t level_one_ = 0;  // where the checksums of the chunks begin
  const uint8_t* data_ = nullptr;
  std::atomic<bool> whole_{false};                        // all pages have been checked
  std::unique_ptr<uint64_t[]> level_two_;                 // checksums of the groups of checksums
  std::unique_ptr<std::atomic<uint8_t>[]> checked_;       // of each chunk
  std::unique_ptr<std::atomic<const uint64_t*>[]> sums_;  // of each group, once they have been read
  // Where the nodes of keys begin in the file, 0 where that is not known, by the low bits of their
  // numbers. Memory that is never written takes none.
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<std::atomic<uint64_t>[], Free> places_;
  uint64_t place_mask_ = 0;
};

}  // namespace fpstore
