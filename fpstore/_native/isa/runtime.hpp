// What a long call uses beside its data, compiled once for the baseline: memory, pages, the wish to
// stop it.
#pragma once
#include <atomic>

#include "format/common.hpp"

namespace fpstore {

// Memory for the length of a call, nullptr when there is none. A thread keeps what it gave back
// last, unless it is large, and gets it again when it asks for as much: the next probe does.
void* take_memory(size_t bytes);
void give_back(void* memory, size_t bytes);

// Memory that one call after the other of a thread uses, as long as it asks for as much or less;
// release() gives it back.
struct Scratch {
  void* memory[2];
  size_t bytes[2];
};
// The memory of a number, 0 or 1: what was in it before is lost. nullptr when there is none.
void* room_in(Scratch* scratch, unsigned number, size_t bytes);
void release(Scratch* scratch);

// Asks for the pages of [p, p + n) to be read from disk, without waiting for them.
void fetch_pages(const void* p, size_t n);

// Maps the pages of a part of a file, if all of them are in the page cache and the system says so.
// The file is mapped from its start; the part begins with a page. Returns whether it did.
bool map_cached_pages(int file, const uint8_t* mapped, uint64_t start, uint64_t bytes);

// Bits that nobody outside the process knows: what is stored or inserted may be made to collide in
// a hash table.
uint64_t random_word();

// How many pages this thread has waited for while they were read from disk.
uint64_t major_faults();

// How a long call learns that it is to end early: another thread has set wanted, or poll says so,
// which is called now and then.
struct Stopper {
  const std::atomic<bool>* wanted = nullptr;
  bool (*poll)(void* of) = nullptr;
  void* of = nullptr;
  uint64_t work = 0;    // since the last look at the faults
  uint64_t quiet = 0;   // since the last poll
  uint64_t faults = 0;  // at the last look
  bool ended = false;   // the call is to end
};
constexpr uint64_t kLookupWork = 8;  // of a look-up in an expanded block
constexpr uint64_t kBlockWork =
    64;  // of opening a block, in the unit of an entry decoded or compared
// Whether the call is to end, after this much more work. Polls are a millisecond of work apart, or
// a few look-ups on disk.
bool should_stop(Stopper* stop, uint64_t work);

}  // namespace fpstore
