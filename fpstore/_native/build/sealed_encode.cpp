#include "build/sealed_encode.hpp"

#include <algorithm>

#include "format/errors.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr uint64_t kPageBytes = SealedEncoder::kPageBytes;
constexpr unsigned kBranch = 1, kLeaf = 2, kApart = 4, kMeta = 8;  // flags of a page
constexpr unsigned kPageHead = 16, kNodeHead = 8, kPointer = 2;
constexpr unsigned kElsewhere = 1;      // flag of a node: its value lies on pages of its own
constexpr uint64_t kMostInLeaf = 2038;  // bytes of a node: LMDB wants room for two in a page
constexpr uint64_t kMagic = 0x1BEEFC0DE, kNowhere = UINT64_MAX;
constexpr unsigned kFreeFlags = 0x4008;  // integer keys, and a file without a folder
constexpr uint64_t kGroupChunks = 512;

void write_tree(uint8_t* p, uint64_t depth, uint64_t branches, uint64_t leaves, uint64_t apart,
                uint64_t entries, uint64_t root) {
  store16(p + 6, static_cast<uint16_t>(depth));
  const uint64_t fields[] = {branches, leaves, apart, entries, root};
  for (unsigned i = 0; i < 5; ++i) store64(p + 8 + 8 * i, fields[i]);
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
  store16(p + 10, static_cast<uint16_t>(flags));
  store16(p + 12, kPageHead);
  store16(p + 14, static_cast<uint16_t>(kPageBytes));
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
  const uint64_t lower = load16(page + 12), upper = load16(page + 14);
  const uint64_t size = (node_bytes_ + bytes + 1) & ~uint64_t{1};
  if (lower + kPointer + size > upper) return nullptr;
  store16(page + lower, static_cast<uint16_t>(upper - size));
  store16(page + 12, static_cast<uint16_t>(lower + kPointer));
  store16(page + 14, static_cast<uint16_t>(upper - size));
  uint8_t* const node = page + upper - size;
  store16(node + 6, static_cast<uint16_t>(8 * words_));
  for (unsigned i = 0; i < words_; ++i) store64be(node + kNodeHead + 8 * i, key[i]);
  return node;
}

bool SealedEncoder::append(const uint64_t* key, const uint8_t* value, uint64_t size) {
  if (entries_ && !std::lexicographical_compare(last_.key, last_.key + words_, key, key + words_))
    return false;
  ++entries_;
  std::copy_n(key, words_, last_.key);
  largest_ = std::max(largest_, size);
  const bool is_apart = node_bytes_ + size > kMostInLeaf;
  uint64_t value_page = 0;
  if (is_apart) {
    const uint64_t count = (kPageHead - 1 + size) / kPageBytes + 1;
    value_page = next_page_;
    uint8_t* const p = add_pages(count, kApart);
    store32(p + 12, static_cast<uint32_t>(count));
    memcpy(p + kPageHead, value, size);
    sum_pages(count);
    apart_ += count;
  }
  const uint64_t bytes = is_apart ? 8 : size;
  uint8_t* node = leaf_.empty() ? nullptr : add_node(leaf_.data(), key, bytes);
  if (!node) {
    close_leaf();
    leaf_.assign(kPageBytes, 0);
    store16(leaf_.data() + 12, kPageHead);
    store16(leaf_.data() + 14, static_cast<uint16_t>(kPageBytes));
    std::copy_n(key, words_, first_.key);
    node = add_node(leaf_.data(), key, bytes);
  }
  store32(node, static_cast<uint32_t>(size));
  store16(node + 4, is_apart ? kElsewhere : 0);
  if (is_apart)
    store64(node + node_bytes_, value_page);
  else if (size)
    memcpy(node + node_bytes_, value, size);
  return true;
}

void SealedEncoder::close_leaf() {
  if (leaf_.empty()) return;
  first_.page = next_page_;
  uint8_t* const p = add_pages(1, kLeaf);
  memcpy(p + 12, leaf_.data() + 12, kPageBytes - 12);
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
    store16(node + 4, static_cast<uint16_t>(child.page >> 32));
  }
  sum_pages(1);
  ++branches_;
  add_child(level + 1, self);
}

// Puts what is open on every level; returns the root.
uint64_t SealedEncoder::put_root() {
  close_leaf();
  if (levels_.empty()) return kNowhere;
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
    store16(p + 10, kMeta);
    store64(p + 16, kMagic);
    store64(p + 32, used_bytes());  // the size of a map
    store32(p + 40, static_cast<uint32_t>(kPageBytes));
    store16(p + 44, kFreeFlags);
    store64(p + 80, kNowhere);
    if (number)
      write_tree(p + 88, depth_, branches_, leaves_, apart_, entries_, root);
    else
      write_tree(p + 88, 0, 0, 0, 0, 0, kNowhere);
    store64(p + 136, number ? next_page_ - 1 : 1);
    store64(p + 144, number);
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
