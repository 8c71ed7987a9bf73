#include "format/sealed_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr unsigned kBranch = 1, kLeaf = 2;  // flags of a page
constexpr unsigned kPageHead = 16, kNodeHead = 8;
constexpr unsigned kElsewhere = 1;  // flag of a node: its value lies on pages of its own
constexpr unsigned kFetched = 32;   // nodes
constexpr unsigned kValueLines = 4;  // of the cache
constexpr uint64_t kSumBytes = 8, kDigestBytes = 8;

bool read_whole(int descriptor, uint8_t* to, uint64_t count, uint64_t at) {
  while (count) {
    const ssize_t n = pread(descriptor, to, count, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    at += static_cast<uint64_t>(n);
    count -= static_cast<uint64_t>(n);
  }
  return true;
}

// The node of a page, whose head and key lie inside it; nullptr if they do not, or the key has another length.
const uint8_t* node_at(const uint8_t* page, uint32_t page_bytes, unsigned i, unsigned key_bytes) {
  const uint64_t at = read_once(load16(page + kPageHead + 2 * i));
  if (at + kNodeHead + key_bytes > page_bytes) return nullptr;
  const uint8_t* const node = page + at;
  return load16(node + 6) == key_bytes ? node : nullptr;
}

// Less than, equal to or greater than 0 as the key of the node is to a row.
int compare(const uint8_t* node, const uint64_t* key, unsigned words) {
  for (unsigned i = 0; i < words; ++i) {
    const uint64_t word = load64be(node + kNodeHead + 8 * i);
    if (word != key[i]) return word < key[i] ? -1 : 1;
  }
  return 0;
}

// The last node of a page, whose nodes ascend, that has no key above; the first of a branch counts as the least, whatever its key.
// nullptr if there is none, or if a node is not sound.
const uint8_t* last_node(const uint8_t* page, uint32_t page_bytes, unsigned count, bool is_leaf, const uint64_t* key, unsigned words) {
  const uint8_t* node = nullptr;
  if (!is_leaf) {  // of the first only the head is read
    const uint64_t first = read_once(load16(page + kPageHead));
    if (first + kNodeHead > page_bytes) return nullptr;
    node = page + first;
  }
  for (unsigned low = !is_leaf, high = count; low < high;) {
    const unsigned middle = low + (high - low) / 2;
    const uint8_t* const tried = node_at(page, page_bytes, middle, 8 * words);
    if (!tried) return nullptr;
    const int order = compare(tried, key, words);
    if (order == 0) return tried;
    if (order > 0) {
      high = middle;
    } else {
      low = middle + 1;
      node = tried;
    }
  }
  return node;
}

}  // namespace

SealedFile::SealedFile(int descriptor, const SealedShape& shape, const uint8_t* level_two, uint64_t level_two_bytes, bool whole)
    : descriptor_(descriptor), whole_(whole), shape_(shape) {
  const uint64_t tail = kSumBytes * (chunks() + groups()) + kDigestBytes;
  if (shape.depth == 0 || shape.page_bytes % kChunkBytes || level_two_bytes != kSumBytes * groups() ||
      shape.file_bytes < used() + tail)
    return;
  level_one_ = shape.file_bytes - tail;
  level_two_.reset(new uint64_t[groups()]);
  memcpy(level_two_.get(), level_two, level_two_bytes);
  checked_.reset(new std::atomic<uint8_t>[chunks()]());
  sums_.reset(new std::atomic<const uint64_t*>[groups()]());
  void* const mapped = mmap(nullptr, shape.file_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return;
  (void)madvise(mapped, shape.file_bytes, MADV_RANDOM);
  data_ = static_cast<const uint8_t*>(mapped);
  uint64_t places = 1;
  while (places < shape.entries && places < kMostPlaces) places *= 2;
  places_.reset(static_cast<std::atomic<uint64_t>*>(calloc(places, sizeof(std::atomic<uint64_t>))));
  place_mask_ = places - 1;
}

void SealedFile::Free::operator()(void* p) const { free(p); }

SealedFile::~SealedFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), shape_.file_bytes);
  for (uint64_t i = 0; sums_ && i < groups(); ++i) delete[] sums_[i].load(std::memory_order_relaxed);
}

const uint64_t* SealedFile::group_sums(uint64_t group) const {
  const uint64_t* known = sums_[group].load(std::memory_order_acquire);
  if (known) return known;
  const uint64_t first = group * kGroupChunks;
  const uint64_t count = chunks() - first < kGroupChunks ? chunks() - first : kGroupChunks;
  std::unique_ptr<uint64_t[]> sums(new uint64_t[count]);
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(sums.get());
  if (!read_whole(descriptor_, bytes, count * kSumBytes, level_one_ + first * kSumBytes)) return nullptr;
  if (xxh64(bytes, count * kSumBytes, 0) != level_two_[group]) return nullptr;
  if (sums_[group].compare_exchange_strong(known, sums.get(), std::memory_order_acq_rel)) return sums.release();
  return known;  // another thread was faster
}

bool SealedFile::check_chunk(uint64_t chunk) const {
  if (checked_[chunk].load(std::memory_order_acquire)) return true;
  const uint64_t* const sums = group_sums(chunk / kGroupChunks);
  if (!sums) return false;
  uint8_t bytes[kChunkBytes];
  const uint64_t at = chunk * kChunkBytes;
  const uint64_t count = used() - at < kChunkBytes ? used() - at : kChunkBytes;
  if (!read_whole(descriptor_, bytes, count, at) || xxh64(bytes, count, 0) != sums[chunk % kGroupChunks]) return false;
  checked_[chunk].store(1, std::memory_order_release);
  return true;
}

// A page of these flags, whose number and node pointers are sound; nullptr if it is none.
const uint8_t* SealedFile::checked_page(uint64_t page, unsigned flags, unsigned* nodes) const {
  if (page < 2 || page > shape_.last_page) return nullptr;
  const uint64_t at = page * shape_.page_bytes;
  for (uint64_t chunk = at / kChunkBytes; !whole_ && chunk < (at + shape_.page_bytes) / kChunkBytes; ++chunk)
    if (!check_chunk(chunk)) return nullptr;
  mapped_bytes_may_change();
  const uint8_t* const p = data_ + at;
  const uint64_t lower = read_once(load16(p + 12));
  if (load64(p) != page || load16(p + 10) != flags || lower < kPageHead || lower > shape_.page_bytes) return nullptr;
  *nodes = static_cast<unsigned>(lower - kPageHead) / 2;
  return p;
}

// Of a node of a leaf, whose head and key lie in its page.
bool SealedFile::copy_value(const Node& of, std::vector<uint8_t>* value) const {
  const uint64_t size = read_once(load32(of.node)), flags = read_once(load16(of.node + 4));
  const uint8_t* from = of.node + kNodeHead + 8 * shape_.key_words;
  uint64_t left = static_cast<uint64_t>(of.page_end - from);
  if (flags == kElsewhere && left >= 8) {
    const uint64_t first = read_once(load64(from));
    if (first < 2 || first > shape_.last_page) return false;
    from = data_ + first * shape_.page_bytes + kPageHead;
    left = shape_.file_bytes - first * shape_.page_bytes - kPageHead;
  } else if (flags != 0) {
    return false;
  }
  if (size > left || size > shape_.longest) return false;
  value->assign(from, from + size);
  return true;
}

// The node of a key in its leaf, and where the leaf ends.
SealedFile::Node SealedFile::walk(const uint64_t* key) const {
  uint64_t page = shape_.root;
  for (unsigned level = shape_.depth; level > 0; --level) {
    const bool is_leaf = level == 1;
    unsigned count;
    const uint8_t* const p = checked_page(page, is_leaf ? kLeaf : kBranch, &count);
    if (!p || count == 0) return {};
    // A leaf has few nodes, and which of them are in the cache is as good as random: they are fetched together.
    for (unsigned i = 0; is_leaf && i < count && i < kFetched; ++i) fetch_line(p + load16(p + kPageHead + 2 * i));
    const uint8_t* const node = last_node(p, shape_.page_bytes, count, is_leaf, key, shape_.key_words);
    if (!node) return {};
    if (is_leaf) return compare(node, key, shape_.key_words) ? Node{} : Node{node, p + shape_.page_bytes};
    page = read_once(uint64_t{load16(node)} | uint64_t{load16(node + 2)} << 16 | uint64_t{load16(node + 4)} << 32);
  }
  return {};
}

void SealedFile::fetch(uint64_t number) const {
  if (!places_) return;
  const uint64_t place = places_[number & place_mask_].load(std::memory_order_relaxed);
  for (unsigned line = 0; place && line < kValueLines; ++line) fetch_line(data_ + place + line * 64);
}

bool SealedFile::read(const uint64_t* key, uint64_t number, std::vector<uint8_t>* value) const {
  if (!data_) return false;
  std::atomic<uint64_t>* const noted = places_ && number != kNoNumber ? &places_[number & place_mask_] : nullptr;
  if (const uint64_t place = noted ? noted->load(std::memory_order_acquire) : 0) {
    // It may be that of another key. Its page was checked before it was noted.
    const uint8_t* const node = data_ + place;
    if (compare(node, key, shape_.key_words) == 0)
      return copy_value({node, data_ + (place / shape_.page_bytes + 1) * shape_.page_bytes}, value);
  }
  const Node found = walk(key);
  if (!found.node) return false;
  if (noted) noted->store(static_cast<uint64_t>(found.node - data_), std::memory_order_release);
  return copy_value(found, value);
}

}  // namespace fpstore
