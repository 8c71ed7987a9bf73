// The pages of a sealed LMDB file, written in order of the keys, and its checksums (docs/format.md,
// "LMDB files").
#pragma once
#include <vector>

#include "format/row.hpp"

namespace fpstore {

// append() values of ascending keys, then finish(). Pages are complete one after the other, from
// page 2 on; move_pages() hands those out that are pending. The metadata pages come last.
class SealedEncoder {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // A key is a row of key_words words.
  explicit SealedEncoder(unsigned key_words);

  // False, with nothing done, if the key is not above the key before.
  bool append(const uint64_t* key, const uint8_t* value, uint64_t size);
  void finish();
  uint64_t pending_bytes() const { return pages_.size(); }
  void move_pages(uint8_t* out);  // all pending ones

  unsigned key_words() const { return words_; }
  const uint64_t* last_key() const { return last_.key; }
  uint64_t largest() const { return largest_; }                    // bytes of a value
  uint64_t used_bytes() const { return next_page_ * kPageBytes; }  // of all pages
  // After finish(): the metadata pages, the checksums behind the padding, and the digest.
  const std::vector<uint8_t>& metadata() const { return metadata_; }
  const std::vector<uint8_t>& checksums() const { return checksums_; }
  uint64_t digest() const { return digest_; }

 private:
  struct Child {
    uint64_t key[kMaxWords];
    uint64_t page;
  };
  // The children of a branch page that is being filled, and of the full page before it, which
  // is kept: LMDB wants two in each, so the last page may need one of these.
  struct Level {
    std::vector<Child> full, open;
  };

  uint8_t* add_pages(uint64_t count, unsigned flags);
  void sum_pages(uint64_t count);
  uint8_t* add_node(uint8_t* page, const uint64_t* key, uint64_t bytes) const;
  void close_leaf();
  void put_branch(size_t level, const std::vector<Child>& children);
  void add_child(size_t level, const Child& child);
  uint64_t put_root();
  void write_metadata(uint64_t root);
  void write_checksums();

  const unsigned words_;
  const uint64_t node_bytes_;  // before the value
  const size_t most_children_;
  std::vector<uint8_t> leaf_, pages_;
  Child last_{}, first_{};  // keys: the last one, and the first one of the leaf
  std::vector<Level> levels_;
  std::vector<uint64_t> sums_;  // of all pages
  std::vector<uint8_t> metadata_, checksums_;
  uint64_t next_page_ = 2, entries_ = 0, leaves_ = 0, branches_ = 0, overflow_pages_ = 0,
           depth_ = 0;
  uint64_t largest_ = 0, digest_ = 0;
};

}  // namespace fpstore
