// Arrays that grow: in place where the system can move their pages, and hash tables made of them.
// Knows nothing of Python.
#pragma once
#include <type_traits>
#include <utility>

#include "format/common.hpp"

namespace fpstore {

// Fuzz targets are built with few buckets and small pages from the heap: a short input fills both,
// AddressSanitizer sees what leaves a page, and a target that replaces operator new decides when
// there are no more.
#ifdef FPSTORE_SMALL
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif

// Anonymous pages, zero at first, resized from one number of bytes to another (0: none); nullptr,
// with nothing changed, when there are no more.
void* resize_pages(void* pages, size_t from, size_t to);

constexpr uint32_t kNone = UINT32_MAX;

// An array of plain values in pages of its own. Room is reserved before values are pushed, so that
// a change that has begun cannot fail. Pages of the room that were never written take no memory.
template <class T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column() { release(); }

  T& operator[](uint64_t i) { return data_[i]; }
  const T& operator[](uint64_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  uint64_t size() const { return size_; }
  uint64_t bytes() const { return size_ * sizeof(T); }

  bool reserve(uint64_t n) { return n <= capacity_ || enlarge(n); }
  void push(const T& value) { data_[size_++] = value; }
  void pop() { --size_; }
  // What is new is zero if it was never written.
  void resize(uint64_t n) { size_ = n; }
  // Gives pages back once more than half of the room is not in use.
  void trim() {
    if (held_ > 4 * kPage && bytes() < held_ / 2) (void)resize_room(size_ + size_ / 4);
  }
  void swap(Column& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(held_, other.held_);
  }

 private:
  static constexpr size_t kPage = kSmall ? 64 : 4096;

  bool enlarge(uint64_t n) {
    return resize_room(n < capacity_ + capacity_ / 2 ? capacity_ + capacity_ / 2 : n);
  }
  bool resize_room(uint64_t n) {
    if (n > (SIZE_MAX - kPage) / sizeof(T)) return false;
    const size_t bytes = (n * sizeof(T) + kPage) / kPage * kPage;  // one page at least
    void* p = resize_pages(data_, held_, bytes);
    if (!p) return false;
    data_ = static_cast<T*>(p);
    held_ = bytes;
    capacity_ = bytes / sizeof(T);
    return true;
  }
  void release() { resize_pages(data_, held_, 0); }

  T* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t capacity_ = 0;
  size_t held_ = 0;
};

// Open addressing with linear probing, at most half full, over places in an array of the caller,
// who hashes and compares.
class Slots {
 public:
  // The place that counts as the same, or kNone.
  template <class Same>
  uint32_t find(uint64_t hash, const Same& same) const {
    if (!slots_.size()) return kNone;
    for (uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
      const uint32_t slot = slots_[i];
      if (!slot) return kNone;
      if (same(slot - 1)) return slot - 1;
    }
  }
  // Puts a place where another may be that counts as the same: it takes its slot.
  template <class Same>
  void put(uint64_t hash, uint32_t place, const Same& same) {
    for (uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
      uint32_t& slot = slots_[i];
      if (slot && !same(slot - 1)) continue;
      used_ += !slot;
      slot = place + 1;
      return;
    }
  }
  void put(uint64_t hash, uint32_t place) {
    put(hash, place, [](uint32_t) { return false; });
  }
  void prefetch(uint64_t hash) const {
    if (slots_.size()) fetch_line(&slots_[hash & mask_]);
  }
  uint32_t peek(uint64_t hash) const { return slots_.size() ? slots_[hash & mask_] - 1 : kNone; }

  // Makes room for `more` places; refill puts everything again, into empty slots.
  template <class Refill>
  bool reserve(const Refill& refill, uint64_t more = 1) {
    if (2 * (used_ + more) <= slots_.size()) return true;
    Column<uint32_t> larger;
    uint64_t n = 1024;
    while (n < 2 * (used_ + more)) n *= 2;
    if (!larger.reserve(n)) return false;
    larger.resize(n);
    slots_.swap(larger);
    mask_ = n - 1;
    used_ = 0;
    refill();
    return true;
  }
  void clear() {
    if (slots_.size()) memset(slots_.data(), 0, slots_.bytes());
    used_ = 0;
  }
  uint64_t bytes() const { return slots_.bytes(); }

 private:
  Column<uint32_t> slots_;  // place + 1, 0: empty
  uint64_t mask_ = 0;
  uint64_t used_ = 0;
};

}  // namespace fpstore
