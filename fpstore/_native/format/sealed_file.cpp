#include "format/sealed_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "format/errors.hpp"
#include "format/xxh64.hpp"

namespace fpstore {

using namespace lmdb;

namespace {

constexpr unsigned kFetched = 32;    // nodes
constexpr unsigned kValueLines = 4;  // of the cache
constexpr unsigned kAhead = 8;       // keys
constexpr unsigned kKeyWork = 64;    // of a look-up, in the unit of should_stop
constexpr uint64_t kSumBytes = 8;
const char* const kThen = ": run fpstore repair";

// Less than, equal to or greater than 0 as the key of a node is to a row.
int compare(const uint8_t* node, const uint64_t* key, unsigned words) {
  for (unsigned i = 0; i < words; ++i) {
    const uint64_t word = load64be(node + kNodeHead + 8 * i);
    if (word != key[i]) return word < key[i] ? -1 : 1;
  }
  return 0;
}

// Less than, equal to or greater than 0 as a row is to another.
int order_of(const uint64_t* a, const uint64_t* b, unsigned words) {
  for (unsigned i = 0; i < words; ++i)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

// Reads a byte of each page of a value, so that who copies it does not wait for a disk.
void touch(const SealedFile::Value& value) {
  for (uint64_t at = 0; at < value.size; at += 4096) read_once(value.data[at]);
}

struct Metadata {
  uint64_t page_bytes, last_page, transaction, root, entries;
  unsigned depth;
};

}  // namespace

void SealedFile::fail(const std::string& what, uint64_t got, uint64_t expected, int error) const {
  throw SealedError{path_ + ": " + what, path_, expected, got, error};
}

void SealedFile::damaged(uint64_t page) const {
  fail("LMDB file is damaged (page " + std::to_string(page) + ")" + kThen, page);
}

void SealedFile::read_at(uint64_t at, uint8_t* to, uint64_t count) const {
  while (count) {
    const ssize_t n = pread(descriptor_, to, count, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail("cannot be read at byte " + std::to_string(at) + " (" + strerror(errno) + ")", at, 0,
           errno);
    if (n == 0) fail("LMDB file is cut short at byte " + std::to_string(at) + kThen, at);
    to += n;
    at += static_cast<uint64_t>(n);
    count -= static_cast<uint64_t>(n);
  }
}

SealedFile::SealedFile(int descriptor, std::string path, unsigned key_words, uint64_t longest)
    : descriptor_(descriptor), path_(std::move(path)), key_words_(key_words), longest_(longest) {
  try {
    checked_words(key_words);
    open_metadata();
    open_seal();
  } catch (...) {
    release();
    throw;
  }
}

SealedFile::~SealedFile() { release(); }

void SealedFile::release() {
  if (data_) munmap(const_cast<uint8_t*>(data_), file_bytes_);
  for (uint64_t i = 0; sums_ && i < groups(); ++i)
    delete[] sums_[i].load(std::memory_order_relaxed);
  close(descriptor_);
}

void SealedFile::Free::operator()(void* p) const { free(p); }

// Opening
// ------------------------------------------------------------------------------------------

void SealedFile::open_metadata() {
  struct stat status;
  if (fstat(descriptor_, &status)) fail(strerror(errno), 0, 0, errno);
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  Metadata found[2];
  for (unsigned number = 0; number < 2; ++number) {
    const std::string page = "page " + std::to_string(number) + ": ";
    const uint64_t at = number ? found[0].page_bytes : 0;
    if (file_bytes_ < at + kMetaBytes)
      fail("LMDB file is cut short (" + std::to_string(file_bytes_) + " bytes)", file_bytes_);
    uint8_t p[kMetaBytes];
    read_at(at, p, kMetaBytes);
    if (load64(p) != number || load16(p + kFlagsAt) != kMeta || load64(p + kMagicAt) != kMagic)
      fail("LMDB file is damaged (" + page + "it is not a metadata page of LMDB)" + kThen, number);
    Metadata& meta = found[number] = {load32(p + kPageBytesAt),   load64(p + kLastPageAt),
                                      load64(p + kTransactionAt), load64(p + kRootAt),
                                      load64(p + kEntriesAt),     load16(p + kDepthAt)};
    const bool is_size = meta.page_bytes >= 4096 && meta.page_bytes <= 65536 &&
                         !(meta.page_bytes & (meta.page_bytes - 1));
    if (!is_size || load16(p + kEnvironmentFlagsAt) != kEnvironmentFlags ||
        load16(p + kTreeFlagsAt) != 0 || meta.page_bytes != found[0].page_bytes)
      fail("LMDB file is damaged (" + page + "the metadata is damaged)" + kThen, number);
    if (meta.last_page < 1 || meta.last_page >= file_bytes_ / meta.page_bytes)
      fail("LMDB file is cut short (" + std::to_string(file_bytes_) +
               " bytes, more pages are in use)" + kThen,
           file_bytes_);
  }
  // Each commit writes the page that is older, and those of odd numbers write the second. Whether
  // the older one once was the newer nobody can tell: LMDB has no checksums.
  const unsigned later = found[1].transaction > found[0].transaction;
  const uint64_t last = found[later].transaction;
  if (last && ((last & 1) != later || last - found[!later].transaction != 1))
    fail(std::string("LMDB file is damaged (page 0: the metadata pages are in the wrong order)") +
             kThen,
         0);
  const Metadata& meta = found[later];
  page_bytes_ = static_cast<uint32_t>(meta.page_bytes);
  last_page_ = meta.last_page;
  root_ = meta.root;
  entries_ = meta.entries;
  if (root_ != kNoPage) {
    depth_ = meta.depth;
    if (root_ < 2 || root_ > last_page_ || depth_ < 1 || depth_ > kMaxDepth)
      fail(std::string("LMDB file is damaged: a tree has no root") + kThen, root_);
  }
  if (entries_ > used() / (kNodeHead + 8 * key_words_))
    fail("LMDB file is damaged: " + std::to_string(entries_) + " keys do not fit" + kThen,
         entries_);
}

void SealedFile::open_seal() {
  const uint64_t tail = kSumBytes * (chunks() + groups() + 1);
  if (file_bytes_ < used() + kPaddingBytes + tail)
    fail("LMDB file is cut short or damaged (" + std::to_string(file_bytes_) + " bytes)" + kThen,
         file_bytes_);
  level_one_ = file_bytes_ - tail;
  level_two_.reset(new uint64_t[groups() + 1]);
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(level_two_.get());
  read_at(level_one_ + kSumBytes * chunks(), bytes, kSumBytes * (groups() + 1));
  digest_ = level_two_[groups()];
  const uint64_t got = xxh64(bytes, kSumBytes * groups(), used());
  if (got != digest_)
    fail(std::string("LMDB file is damaged (digest differs)") + kThen, got, digest_);
  checked_.reset(new std::atomic<uint8_t>[chunks()]());
  sums_.reset(new std::atomic<const uint64_t*>[groups()]());
  for (uint64_t at = 0; at < 2 * uint64_t{page_bytes_}; at += kChunkBytes)
    check_chunk(at / kChunkBytes);
  uint64_t places = 1;
  while (places < entries_ && places < kMaxPlaces) places *= 2;
  places_.reset(static_cast<std::atomic<uint64_t>*>(calloc(places, sizeof(std::atomic<uint64_t>))));
  place_mask_ = places - 1;
  void* const mapped = mmap(nullptr, file_bytes_, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) fail(strerror(errno), 0, 0, errno);
  (void)madvise(mapped, file_bytes_, MADV_RANDOM);
  data_ = static_cast<const uint8_t*>(mapped);
}

// Checksums
// ----------------------------------------------------------------------------------------

const uint64_t* SealedFile::group_sums(uint64_t group) const {
  const uint64_t* known = sums_[group].load(std::memory_order_acquire);
  if (known) return known;
  const uint64_t first = group * kGroupChunks;
  const uint64_t count = chunks() - first < kGroupChunks ? chunks() - first : kGroupChunks;
  std::unique_ptr<uint64_t[]> sums(new uint64_t[count]);
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(sums.get());
  read_at(level_one_ + first * kSumBytes, bytes, count * kSumBytes);
  const uint64_t got = xxh64(bytes, count * kSumBytes, 0);
  if (got != level_two_[group])
    fail(std::string("LMDB file is damaged (its checksums are damaged)") + kThen, got,
         level_two_[group]);
  if (sums_[group].compare_exchange_strong(known, sums.get(), std::memory_order_acq_rel))
    return sums.release();
  return known;  // another thread was faster
}

void SealedFile::check_chunk(uint64_t chunk) const {
  if (checked_[chunk].load(std::memory_order_acquire)) return;
  const uint64_t* const sums = group_sums(chunk / kGroupChunks);
  uint8_t bytes[kChunkBytes];
  read_at(chunk * kChunkBytes, bytes, chunk_bytes(chunk));
  if (xxh64(bytes, chunk_bytes(chunk), 0) != sums[chunk % kGroupChunks])
    fail("LMDB file is damaged at byte " + std::to_string(chunk * kChunkBytes) +
             " (checksum differs)" + kThen,
         chunk * kChunkBytes);
  checked_[chunk].store(1, std::memory_order_release);
}

void SealedFile::check_all(Stopper* stop) {
  for (uint64_t chunk = 0; !whole_ && chunk < chunks(); ++chunk) {
    if (should_stop(stop, kChunkBytes / 4)) return;
    check_chunk(chunk);
  }
  whole_ = true;
}

// Pages
// --------------------------------------------------------------------------------------------

// A page of these flags, whose number and node pointers are sound, and which has a node.
SealedFile::Step SealedFile::checked_page(uint64_t page, unsigned flags) const {
  if (page < 2 || page > last_page_) damaged(page);
  const uint64_t at = page * page_bytes_;
  if (!whole_.load(std::memory_order_relaxed))
    for (uint64_t chunk = at / kChunkBytes; chunk < (at + page_bytes_) / kChunkBytes; ++chunk)
      check_chunk(chunk);
  mapped_bytes_may_change();
  const uint8_t* const p = data_ + at;
  const uint64_t lower = read_once(load16(p + kLowerAt));
  if (load64(p) != page || load16(p + kFlagsAt) != flags || lower < kPageHead + kPointer ||
      lower > page_bytes_)
    damaged(page);
  return {p, static_cast<unsigned>(lower - kPageHead) / kPointer, 0};
}

// A node of a page, whose head and key lie inside it.
const uint8_t* SealedFile::node(const Step& step, unsigned i) const {
  const uint64_t at = read_once(load16(step.page + kPageHead + kPointer * i));
  if (at + kNodeHead + 8 * key_words_ > page_bytes_ ||
      load16(step.page + at + kKeyBytesAt) != 8 * key_words_)
    damaged(page_of(step.page));
  return step.page + at;
}

// How many nodes of a page, which ascend, have no key above; the first of a branch counts as the
// least, whatever its key.
unsigned SealedFile::nodes_up_to(const Step& step, bool is_leaf, const uint64_t* key) const {
  unsigned low = !is_leaf, high = step.count;
  while (low < high) {
    const unsigned middle = low + (high - low) / 2;
    const int order = compare(node(step, middle), key, key_words_);
    if (order == 0) return middle + 1;
    if (order > 0)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The page that a node of a branch leads to; of the first, only the head is read.
uint64_t SealedFile::child(const Step& step) const {
  const uint64_t at = read_once(load16(step.page + kPageHead + kPointer * step.at));
  if (at + kNodeHead > page_bytes_) damaged(page_of(step.page));
  const uint8_t* const p = step.page + at;
  return read_once(uint64_t{load16(p)} | uint64_t{load16(p + 2)} << 16 |
                   uint64_t{load16(p + 4)} << 32);
}

// Of a node of a leaf, whose head and key lie in its page.
SealedFile::Value SealedFile::value_of(const uint8_t* node) const {
  const uint64_t size = read_once(load32(node)), flags = read_once(load16(node + kNodeFlagsAt)),
                 page = page_of(node);
  const uint8_t* from = node + kNodeHead + 8 * key_words_;
  uint64_t left = static_cast<uint64_t>(data_ + (page + 1) * page_bytes_ - from);
  if (size > longest_)
    fail("LMDB file is damaged (a value of " + std::to_string(size) + " bytes)" + kThen, size);
  if (flags == kBigData && left >= 8) {
    const uint64_t first = read_once(load64(from));
    if (first < 2 || first > last_page_) damaged(page);
    from = data_ + first * page_bytes_ + kPageHead;
    left = file_bytes_ - first * page_bytes_ - kPageHead;
  } else if (flags != 0) {
    damaged(page);
  }
  if (size > left) damaged(page);
  return {from, size};
}

// Walks
// --------------------------------------------------------------------------------------------

// Goes to the first node whose key is not below; false if the leaf ends before it: then the next
// leaf begins with it, if there is one.
bool SealedFile::seek(const uint64_t* key, Way* way) const {
  uint64_t page = root_;
  for (unsigned level = 0; level + 1 < depth_; ++level) {
    Step& step = way->steps[level] = checked_page(page, kBranch);
    step.at = nodes_up_to(step, false, key) - 1;
    page = child(step);
  }
  Step& leaf = way->steps[depth_ - 1] = checked_page(page, kLeaf);
  // A leaf has few nodes, and which of them are in the cache is as good as random: they are fetched
  // together.
  for (unsigned i = 0; i < leaf.count && i < kFetched; ++i)
    fetch_line(leaf.page + load16(leaf.page + kPageHead + kPointer * i));
  return seek_inside(&leaf, key);
}

bool SealedFile::seek_inside(Step* leaf, const uint64_t* key) const {
  leaf->at = nodes_up_to(*leaf, true, key);
  if (leaf->at && compare(node(*leaf, leaf->at - 1), key, key_words_) == 0) --leaf->at;
  return leaf->at < leaf->count;
}

// Goes to the next node of a leaf; false behind the last.
bool SealedFile::next(Way* way) const {
  unsigned level = depth_ - 1;
  while (++way->steps[level].at >= way->steps[level].count)
    if (level-- == 0) return false;
  for (; level + 1 < depth_; ++level)
    way->steps[level + 1] =
        checked_page(child(way->steps[level]), level + 2 == depth_ ? kLeaf : kBranch);
  return true;
}

// Whether a key lies between the first and the last of a leaf.
bool SealedFile::is_inside(const Step& leaf, const uint64_t* key) const {
  return leaf.page && compare(node(leaf, 0), key, key_words_) <= 0 &&
         compare(node(leaf, leaf.count - 1), key, key_words_) >= 0;
}

void SealedFile::fetch(uint64_t number) const {
  if (!places_) return;
  const uint64_t place = places_[number & place_mask_].load(std::memory_order_relaxed);
  for (unsigned line = 0; place && line < kValueLines; ++line)
    fetch_line(data_ + place + line * 64);
}

SealedFile::Value SealedFile::noted(const uint64_t* key, uint64_t number) const {
  const uint64_t place = places_ && number != kNoNumber
                             ? places_[number & place_mask_].load(std::memory_order_acquire)
                             : 0;
  // It may be that of another key. Its page was checked before it was noted.
  if (!place || compare(data_ + place, key, key_words_) != 0) return {nullptr, 0};
  return value_of(data_ + place);
}

// The way is that to the key before, or none.
SealedFile::Value SealedFile::look_up(const uint64_t* key, uint64_t number, Way* way) const {
  if (!depth_) return {nullptr, 0};
  Step& leaf = way->steps[depth_ - 1];
  if (!(is_inside(leaf, key) ? seek_inside(&leaf, key) : seek(key, way))) return {nullptr, 0};
  const uint8_t* const found = node(leaf, leaf.at);
  if (compare(found, key, key_words_) != 0) return {nullptr, 0};
  if (places_ && number != kNoNumber)
    places_[number & place_mask_].store(static_cast<uint64_t>(found - data_),
                                        std::memory_order_release);
  return value_of(found);
}

SealedFile::Value SealedFile::find(const uint64_t* key, uint64_t number) const {
  const Value known = noted(key, number);
  if (known.data) return known;
  Way way;
  return look_up(key, number, &way);
}

void SealedFile::find_many(const uint64_t* keys, const uint64_t* numbers, size_t count,
                           uint64_t enough, Stopper* stop, std::vector<Value>* values) const {
  Way way;
  uint64_t taken = 0;
  for (size_t i = 0; i < count && taken < enough; ++i) {
    if (should_stop(stop, kKeyWork)) return;
    if (i + kAhead < count) fetch(numbers[i + kAhead]);
    const uint64_t* const key = keys + i * key_words_;
    Value value = noted(key, numbers[i]);
    if (!value.data) value = look_up(key, numbers[i], &way);
    touch(value);
    taken += value.size;
    values->push_back(value);
  }
}

void SealedFile::range(const uint64_t* first, const uint64_t* last, uint64_t most, Stopper* stop,
                       std::vector<Value>* values, std::vector<uint64_t>* keys) const {
  if (!depth_) return;
  Way way;
  for (bool there = seek(first, &way) || next(&way); there && values->size() < most;
       there = next(&way)) {
    if (should_stop(stop, kKeyWork)) return;
    const Step& leaf = way.steps[depth_ - 1];
    const uint8_t* const found = node(leaf, leaf.at);
    const size_t begin = keys->size();
    for (unsigned i = 0; i < key_words_; ++i)
      keys->push_back(read_once(load64be(found + kNodeHead + 8 * i)));
    const uint64_t* const key = keys->data() + begin;
    const int order = order_of(key, last, key_words_);
    if (order > 0) {
      keys->resize(begin);
      return;
    }
    // A tree that leads to a page again, perhaps in a circle, has a key again.
    if (begin ? order_of(key, key - key_words_, key_words_) <= 0
              : order_of(key, first, key_words_) < 0)
      fail(std::string("LMDB file is damaged: keys are out of order") + kThen, *key);
    values->push_back(value_of(found));
    touch(values->back());
    if (order == 0) return;  // what follows is not looked at
  }
}

}  // namespace fpstore
