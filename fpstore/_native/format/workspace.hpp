// Memory in which blocks are decoded.
#pragma once
#include "format/block_format.hpp"
#include "isa/runtime.hpp"

namespace fpstore {
inline namespace FPSTORE_ISA {

// What a block of this size can hold, whatever its codec: an entry takes at least one bit.
inline uint32_t most_entries(uint32_t block_bytes) {
  return (block_bytes - kMinBlockHeaderBytes) * 8;
}

// Where blocks of at most block_bytes are decoded. It is too large for the stack of a small thread,
// and without memory it is not fine.
class Workspace {
 public:
  explicit Workspace(uint32_t block_bytes) {
    const size_t symbols = (most_entries(block_bytes) + kBehind + 63) / 64 * 64;
    const size_t entries = most_entries(block_bytes) + kValuesBehind;
    bytes_ = kWays * symbols + entries * sizeof(uint64_t);
    memory_ = static_cast<uint8_t*>(take_memory(bytes_));
    if (!memory_) return;
    for (unsigned k = 0; k < kWays; ++k) codes[k] = memory_ + k * symbols;
    rises = reinterpret_cast<uint16_t*>(memory_);
    values = reinterpret_cast<uint64_t*>(memory_ + kWays * symbols);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { give_back(memory_, bytes_); }
  bool fine() const { return memory_; }
  static_assert(kWays >= 2 * sizeof(uint16_t), "the room for codes holds the rises");

  static constexpr size_t kBehind =
      64;  // readable and writable behind the codes of a block, or the rises
  static constexpr size_t kValuesBehind =
      32;  // and behind its entries: vectors are read and written whole

  uint8_t* codes[kWays];  // of each of the blocks opened together, a byte for each entry
  uint16_t* rises;        // of one block, in the same memory: a codec has the ones or the others
  uint64_t* values;       // room for the entries of one block

 private:
  uint8_t* memory_;
  size_t bytes_;
};

}  // namespace FPSTORE_ISA
}  // namespace fpstore
