// Shared vocabulary of the kernel: limits of the format, status codes, and bit helpers. Knows
// nothing of Python.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "fpstore maps its files as they are, little-endian: it cannot be built for a "
              "big-endian processor");

// What each instruction set compiles for itself is in a namespace of its name, which sources.txt
// defines for its file; every other file runs on the baseline.
#ifndef FPSTORE_ISA
#define FPSTORE_ISA scalar
#endif

namespace fpstore {

// Limits fixed by format version 1 (docs/format.md). Every length read from a file is bounded by
// one of them.
constexpr uint32_t kFormatVersion = 1;
constexpr unsigned kHeaderBytes = 4096;
constexpr unsigned kHuffmanHeaderBytes = 16;  // of a block
constexpr unsigned kEliasFanoHeaderBytes = 8;
constexpr unsigned kMinBlockHeaderBytes = kEliasFanoHeaderBytes;
constexpr unsigned kMinBlockBytes = 128;
constexpr unsigned kMaxBlockBytes = 4096;
constexpr unsigned kSymbols = 65;      // h, the position of the first differing bit, 0 = most
                                       // significant; 64: another word differs
constexpr unsigned kMaxCodeBits = 16;  // longest Huffman code
constexpr unsigned kMaxDirectoryBits = 32;
constexpr unsigned kMaxEntries = kMaxBlockBytes * 8;  // an entry takes at least one bit
constexpr unsigned kOverread = 16;                    // readable bytes a block must have behind it

enum class Status : int {
  ok = 0,
  bad_magic,
  bad_header_checksum,
  unknown_version,
  unknown_flags,
  unknown_width,
  bad_header_field,
  bad_permutation,
  bad_code,
  bad_file_size,
  bad_block_checksum,
  bad_block_count,
  bad_block_bits,
  bad_block_order,
  bad_key,
  bad_directory,
  bad_digest,
  bad_padding,
  bad_record,
  bad_place,
  out_of_memory,
  interrupted,
};

// What was found wrong, and where: enough to build the error message without reading the file
// again.
struct Fault {
  Status status = Status::ok;
  uint64_t block = UINT64_MAX;
  uint64_t expected = 0;
  uint64_t got = 0;
  unsigned table = 0;  // of a probe: which of its tables
};

const char* describe(Status status);

#define FPSTORE_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define FPSTORE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
// Returns what went wrong from the function that tries it.
#define FPSTORE_TRY(work)                                                                 \
  do {                                                                                    \
    if (const Status tried = (work); FPSTORE_UNLIKELY(tried != Status::ok)) return tried; \
  } while (false)

static inline Status interrupted(Fault* fault) {
  return (*fault = Fault{Status::interrupted}).status;
}
static inline Status no_memory(Fault* fault) {
  return (*fault = Fault{Status::out_of_memory}).status;
}

// A helper outside the namespace of an instruction set is static, never only inline: of functions
// with one name the linker keeps one, and that might be the one compiled for an instruction set
// that this machine lacks (tools/unoptimized looks for them).

static inline uint64_t load64be(const uint8_t* p) {
  uint64_t x;
  memcpy(&x, p, 8);
  return __builtin_bswap64(x);
}
static inline uint64_t load64(const uint8_t* p) {
  uint64_t x;
  memcpy(&x, p, 8);
  return x;
}
static inline uint32_t load32(const uint8_t* p) {
  uint32_t x;
  memcpy(&x, p, 4);
  return x;
}
static inline uint16_t load16(const uint8_t* p) {
  uint16_t x;
  memcpy(&x, p, 2);
  return x;
}
static inline void store64be(uint8_t* p, uint64_t x) {
  x = __builtin_bswap64(x);
  memcpy(p, &x, 8);
}
static inline void store64(uint8_t* p, uint64_t x) { memcpy(p, &x, 8); }
static inline void store32(uint8_t* p, uint32_t x) { memcpy(p, &x, 4); }
static inline void store16(uint8_t* p, uint16_t x) { memcpy(p, &x, 2); }

// Bytes of a mapped file have just been checked, or read. They may change at any time:
// tools/fuzz/fuzz_twice.cpp changes them here.
#ifdef FPSTORE_SMALL
inline void (*change_mapped_bytes)() = nullptr;
static inline void mapped_bytes_may_change() {
  if (change_mapped_bytes) change_mapped_bytes();
}
#else
static inline void mapped_bytes_may_change() {}
#endif

// A value read from a mapped file: what is done from here on is done with this copy of it, for the
// compiler cannot read it again.
static inline uint64_t read_once(uint64_t x) {
  asm volatile("" : "+r"(x));
  mapped_bytes_may_change();
  return x;
}

// Fetches a line of the cache. Without the empty statement GCC takes a function that does nothing
// else for one without effect, and leaves its calls out.
static inline void fetch_line(const void* p) {
  __builtin_prefetch(p);
  asm volatile("");
}

// Position of the most significant set bit, 0 = MSB; x must not be zero.
static inline unsigned first_bit(uint64_t x) { return static_cast<unsigned>(__builtin_clzll(x)); }

// The n most significant bits set, 0 <= n <= 64.
static inline uint64_t top_mask(unsigned n) { return n == 0 ? 0 : ~uint64_t{0} << (64 - n); }

// The first n bits of a word as a number; n is 0 to 63.
static inline uint64_t leading_bits(uint64_t word, unsigned n) { return word >> 1 >> (63 - n); }

}  // namespace fpstore
