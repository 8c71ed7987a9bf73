#include "format/sealed_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "format/xxh64.hpp"

namespace fpstore {

namespace {

constexpr unsigned kBranch = 1, kLeaf = 2;  // flags of a page
constexpr unsigned kPageHead = 16, kNodeHead = 8;
constexpr unsigned kElsewhere = 1;  // flag of a node: its value lies on pages of its own
constexpr unsigned kFetched = 32;
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
}

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
  const uint8_t* const p = data_ + at;
  const uint64_t lower = read_once(load16(p + 12));
  if (load64(p) != page || load16(p + 10) != flags || lower < kPageHead || lower > shape_.page_bytes) return nullptr;
  *nodes = static_cast<unsigned>(lower - kPageHead) / 2;
  return p;
}

SealedValue SealedFile::find(const uint64_t* key) const {
  if (!data_) return {};
  const unsigned words = shape_.key_words, key_bytes = 8 * words;
  uint64_t page = shape_.root;
  for (unsigned level = shape_.depth; level > 0; --level) {
    unsigned count;
    const uint8_t* const p = checked_page(page, level > 1 ? kBranch : kLeaf, &count);
    if (!p || count == 0) return {};
    // A leaf has few nodes, and which of them are in the cache is as good as random: they are fetched together.
    if (level == 1)
      for (unsigned i = 0; i < count && i < kFetched; ++i) __builtin_prefetch(p + load16(p + kPageHead + 2 * i));
    // The last node whose key is not above; the first of a branch counts as the least, whatever its key.
    unsigned low = level > 1, high = count;
    const uint8_t* node = nullptr;
    while (low < high) {
      const unsigned middle = low + (high - low) / 2;
      const uint8_t* const tried = node_at(p, shape_.page_bytes, middle, key_bytes);
      if (!tried) return {};
      const int order = compare(tried, key, words);
      if (order > 0) {
        high = middle;
        continue;
      }
      low = middle + 1;
      node = tried;
      if (order == 0) break;
    }
    if (level > 1) {
      if (!node) {  // of the first only the head is read
        const uint64_t first = read_once(load16(p + kPageHead));
        if (first + kNodeHead > shape_.page_bytes) return {};
        node = p + first;
      }
      page = read_once(uint64_t{load16(node)} | uint64_t{load16(node + 2)} << 16 | uint64_t{load16(node + 4)} << 32);
      continue;
    }
    if (!node || compare(node, key, words)) return {};
    const uint64_t size = read_once(load32(node));
    if (size > shape_.longest) return {};
    const uint8_t* value = node + kNodeHead + key_bytes;
    const uint64_t left = static_cast<uint64_t>(p + shape_.page_bytes - value);
    switch (load16(node + 4)) {
      case 0:
        return size <= left ? SealedValue{value, size} : SealedValue{};
      case kElsewhere: {
        if (left < 8) return {};
        const uint64_t first = read_once(load64(value));
        if (first < 2 || first > shape_.last_page) return {};
        const uint64_t at = first * shape_.page_bytes + kPageHead;
        return size <= shape_.file_bytes - at ? SealedValue{data_ + at, size} : SealedValue{};
      }
      default:
        return {};
    }
  }
  return {};
}

}  // namespace fpstore
