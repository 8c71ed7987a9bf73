#include "build/sealed_encode.hpp"

#include <algorithm>

#include "format/errors.hpp"
#include "format/lmdb_page.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

using namespace lmdb;

namespace {

constexpr uint64_t kPageBytes = SealedEncoder::kPageBytes;

// The head of an empty page, but for its number.
void init_page(uint8_t* p, unsigned flags) {
  store16(p + kFlagsAt, static_cast<uint16_t>(flags));
  store16(p + kLowerAt, kPageHead);
  store16(p + kUpperAt, static_cast<uint16_t>(kPageBytes));
}

void store_words(uint8_t* p, const uint64_t* words, size_t n) {
  for (size_t i = 0; i < n; ++i) store64(p + 8 * i, words[i]);
}

}  // namespace

SealedEncoder::SealedEncoder(unsigned key_words)
    : words_(checked_words(key_words)),
      node_bytes_(kNodeHead + 8 * key_words),
      most_children_((kPageBytes - kPageHead) / (node_bytes_ + kPointer)),
      sums_(2) {}

// Adds empty pages that follow each other; the pointer is valid until the next ones.
uint8_t* SealedEncoder::add_pages(uint64_t count, unsigned flags) {
  const size_t at = pages_.size();
  pages_.resize(at + count * kPageBytes);
  uint8_t* const p = pages_.data() + at;
  store64(p, next_page_);
  init_page(p, flags);
  next_page_ += count;
  return p;
}

// The checksums of the last pages, which are complete.
void SealedEncoder::sum_pages(uint64_t count) {
  for (const uint8_t* p = pages_.data() + pages_.size() - count * kPageBytes; count--;
       p += kPageBytes)
    sums_.push_back(xxh64(p, kPageBytes, 0));
}

// Adds a node with room for some bytes behind the key; nullptr if the page is full. LMDB puts nodes
// from the end of a page on, at even places, and pointers to them from its start on.
uint8_t* SealedEncoder::add_node(uint8_t* page, const uint64_t* key, uint64_t bytes) const {
  const uint64_t lower = load16(page + kLowerAt), upper = load16(page + kUpperAt);
  const uint64_t size = (node_bytes_ + bytes + 1) & ~uint64_t{1};
  if (lower + kPointer + size > upper) return nullptr;
  store16(page + lower, static_cast<uint16_t>(upper - size));
  store16(page + kLowerAt, static_cast<uint16_t>(lower + kPointer));
  store16(page + kUpperAt, static_cast<uint16_t>(upper - size));
  uint8_t* const node = page + upper - size;
  store16(node + kKeyBytesAt, static_cast<uint16_t>(8 * words_));
  for (unsigned i = 0; i < words_; ++i) store64be(node + kNodeHead + 8 * i, key[i]);
  return node;
}

bool SealedEncoder::append(const uint64_t* key, const uint8_t* value, uint64_t size) {
  if (entries_ && !std::lexicographical_compare(last_.key, last_.key + words_, key, key + words_))
    return false;
  need(size <= UINT32_MAX, "a value is larger than 4 GiB");  // whose size has 32 bits
  ++entries_;
  std::copy_n(key, words_, last_.key);
  largest_ = std::max(largest_, size);
  const bool is_big = node_bytes_ + size > kMaxNodeBytes;
  uint64_t value_page = 0;
  if (is_big) {
    const uint64_t count = (kPageHead - 1 + size) / kPageBytes + 1;
    value_page = next_page_;
    uint8_t* const p = add_pages(count, kOverflow);
    store32(p + kCountAt, static_cast<uint32_t>(count));
    memcpy(p + kPageHead, value, size);
    sum_pages(count);
    overflow_pages_ += count;
  }
  const uint64_t bytes = is_big ? 8 : size;
  uint8_t* node = leaf_.empty() ? nullptr : add_node(leaf_.data(), key, bytes);
  if (!node) {
    close_leaf();
    leaf_.assign(kPageBytes, 0);
    init_page(leaf_.data(), kLeaf);
    std::copy_n(key, words_, first_.key);
    node = add_node(leaf_.data(), key, bytes);
  }
  store32(node, static_cast<uint32_t>(size));
  store16(node + kNodeFlagsAt, is_big ? kBigData : 0);
  if (is_big)
    store64(node + node_bytes_, value_page);
  else if (size)
    memcpy(node + node_bytes_, value, size);
  return true;
}

void SealedEncoder::close_leaf() {
  if (leaf_.empty()) return;
  first_.page = next_page_;
  uint8_t* const p = add_pages(1, kLeaf);
  memcpy(p + kFlagsAt, leaf_.data() + kFlagsAt, kPageBytes - kFlagsAt);
  sum_pages(1);
  ++leaves_;
  add_child(0, first_);
}

void SealedEncoder::add_child(size_t level, const Child& child) {
  if (level == levels_.size()) levels_.emplace_back();
  if (levels_[level].open.size() == most_children_) {
    const std::vector<Child> full = std::move(levels_[level].full);
    levels_[level].full = std::move(levels_[level].open);
    levels_[level].open.clear();
    if (!full.empty()) put_branch(level, full);
  }
  levels_[level].open.push_back(child);
}

void SealedEncoder::put_branch(size_t level, const std::vector<Child>& children) {
  Child self = children[0];
  self.page = next_page_;
  uint8_t* const p = add_pages(1, kBranch);
  for (const Child& child : children) {
    uint8_t* const node = add_node(p, child.key, 0);
    store32(node, static_cast<uint32_t>(child.page));
    store16(node + kNodeFlagsAt, static_cast<uint16_t>(child.page >> 32));
  }
  sum_pages(1);
  ++branches_;
  add_child(level + 1, self);
}

// Puts what is open on every level; returns the root.
uint64_t SealedEncoder::put_root() {
  close_leaf();
  if (levels_.empty()) return kNoPage;
  for (size_t level = 0;; ++level) {
    std::vector<Child> full = std::move(levels_[level].full), open = std::move(levels_[level].open);
    depth_ = level + 1;
    if (full.empty() && open.size() == 1) return open[0].page;
    if (!full.empty()) {
      if (open.size() == 1) {
        open.insert(open.begin(), full.back());
        full.pop_back();
      }
      put_branch(level, full);
    }
    put_branch(level, open);
  }
}

// The first page has the empty file, and the second the one transaction that wrote all.
void SealedEncoder::write_metadata(uint64_t root) {
  metadata_.assign(2 * kPageBytes, 0);
  for (uint64_t number = 0; number < 2; ++number) {
    uint8_t* const p = metadata_.data() + number * kPageBytes;
    store64(p, number);
    store16(p + kFlagsAt, kMeta);
    store64(p + kMagicAt, kMagic);
    store64(p + kMapBytesAt, used_bytes());
    store32(p + kPageBytesAt, static_cast<uint32_t>(kPageBytes));
    store16(p + kEnvironmentFlagsAt, kEnvironmentFlags);
    store64(p + kFreeRootAt, kNoPage);
    if (number) {
      store16(p + kDepthAt, static_cast<uint16_t>(depth_));
      store64(p + kBranchesAt, branches_);
      store64(p + kLeavesAt, leaves_);
      store64(p + kOverflowPagesAt, overflow_pages_);
      store64(p + kEntriesAt, entries_);
    }
    store64(p + kRootAt, number ? root : kNoPage);
    store64(p + kLastPageAt, number ? next_page_ - 1 : 1);
    store64(p + kTransactionAt, number);
    sums_[number] = xxh64(p, kPageBytes, 0);
  }
}

void SealedEncoder::write_checksums() {
  std::vector<uint64_t> groups;
  for (size_t first = 0; first < sums_.size(); first += kGroupChunks)
    groups.push_back(xxh64(reinterpret_cast<const uint8_t*>(sums_.data() + first),
                           8 * std::min<uint64_t>(sums_.size() - first, kGroupChunks), 0));
  digest_ = xxh64(reinterpret_cast<const uint8_t*>(groups.data()), 8 * groups.size(), used_bytes());
  checksums_.resize(8 * (sums_.size() + groups.size() + 1));
  store_words(checksums_.data(), sums_.data(), sums_.size());
  store_words(checksums_.data() + 8 * sums_.size(), groups.data(), groups.size());
  store64(checksums_.data() + checksums_.size() - 8, digest_);
}

void SealedEncoder::finish() {
  write_metadata(put_root());
  write_checksums();
}

void SealedEncoder::move_pages(uint8_t* out) {
  std::copy(pages_.begin(), pages_.end(), out);
  pages_.clear();
}

}  // namespace fpstore
