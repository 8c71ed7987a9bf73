// Headers and codes: whatever the bytes, parse_header stays inside them, and what it accepts is
// what docs/format.md allows.
#include <memory>

#include "format/header.hpp"
#include "format/xxh64.hpp"
#include "rows.hpp"
#include "isa/kernels.hpp"

using namespace fpstore;

namespace {

constexpr unsigned kPermutationAt = 128, kCodeAt = kPermutationAt + kMaxWidth,
                   kBehindCode = kCodeAt + kSymbols;

// What the input wants put right before the header is parsed, so that the checks behind each check
// are reached.
enum Repair : unsigned {
  kMagic = 1,
  kChecksum = 2,
  kLayout = 4,
  kPermutation = 8,
  kCode = 16,
  kReserved = 32,
  kRanges = 64,
  kSize = 128,
};

void put_layout(uint8_t* p) {
  const uint64_t keys = kHeaderBytes + load64(p + 40) * load32(p + 28);
  const uint64_t directory = keys + load64(p + 40) * 8 * words_of(load16(p + 16));
  const unsigned bits = load16(p + 26);
  store64(p + 48, kHeaderBytes);
  store64(p + 56, keys);
  store64(p + 64, directory);
  store64(p + 72, directory + ((uint64_t{1} << (bits & 63)) + 1) * 8);
}

void put_ranges(uint8_t* p) {
  store16(p + 16, static_cast<uint16_t>(32 << (load16(p + 16) & 3)));
  store16(p + 20, static_cast<uint16_t>(load16(p + 20) | 1));
  store16(p + 18, static_cast<uint16_t>(load16(p + 18) % load16(p + 20)));
  store16(p + 22, static_cast<uint16_t>(load16(p + 22) % (load16(p + 16) < 64 ? 33 : 65)));
  store16(p + 24, static_cast<uint16_t>(load16(p + 24) % (load16(p + 22) + 1)));
  store16(p + 26, static_cast<uint16_t>(load16(p + 26) % 35));
  store32(p + 28, 64u << load32(p + 28) % 8);
  store64(p + 40, load64(p + 40) & 0xFFFFFFFF);
  store64(p + 32, load64(p + 40) + load64(p + 32) % (load64(p + 40) * 1000 + 1));
}

void check_code(const uint8_t lengths[kSymbols]) {
  EncodeTable encode;
  DecodeTable decode;
  const Status status = make_decode_table(lengths, &decode);
  REQUIRE(make_encode_table(lengths, &encode) == status);
  uint32_t kraft = 0;
  unsigned symbols = 0;
  bool short_enough = true;
  for (unsigned s = 0; s < kSymbols; ++s) {
    if (lengths[s] > kMaxCodeBits)
      short_enough = false;
    else if (lengths[s])
      kraft += 1u << (kMaxCodeBits - lengths[s]), ++symbols;
  }
  REQUIRE((status == Status::ok) == (short_enough && symbols >= 2 && kraft == 1u << kMaxCodeBits));
  if (status != Status::ok) return;
  const fuzz::SlowCode slow(lengths);
  for (unsigned s = 0; s < kSymbols; ++s) {
    REQUIRE(encode.bits[s] == (lengths[s] ? lengths[s] : kNoCode));
    if (!lengths[s]) continue;
    uint8_t symbol;
    const uint64_t window = static_cast<uint64_t>(encode.code[s]) << (64 - lengths[s]);
    for (const uint64_t rest : {uint64_t{0}, ~uint64_t{0} >> lengths[s]})
      REQUIRE(decode_one(decode, window | rest, &symbol) == lengths[s] && symbol == s);
  }
  // A spread of look-ups against the slow decoder.
  for (uint32_t x = lengths[0] % 37; x < 1u << kLookupBits; x += 37) {
    const uint64_t entry = decode.lookup[x];
    uint8_t bits[8];
    store64be(bits, uint64_t{x} << (64 - kLookupBits));
    uint32_t at = 0;
    unsigned n = 0;
    for (uint32_t next = 0; n < kLookupSymbols; ++n, at = next) {
      const int symbol = slow.decode(bits, &next, kLookupBits);
      if (symbol < 0) break;
      REQUIRE(static_cast<uint8_t>(entry >> (16 + 8 * n)) == symbol);
    }
    REQUIRE(static_cast<uint8_t>(entry) == at && static_cast<uint8_t>(entry >> 8) == n);
  }
}

template <class W>
void check_permutation(const TableHeader& h) {
  Permutation forward, inverse;
  make_permutation(h.permutation, W::kBits, &forward, &inverse);
  fuzz::Random random(h.set_digest);
  for (unsigned i = 0; i < W::kBits; ++i) {
    REQUIRE(apply(forward, fuzz::one_bit<W>(h.permutation[i])) == fuzz::one_bit<W>(i));
    const auto x = fuzz::random_row<W>(&random);
    REQUIRE(apply(inverse, apply(forward, x)) == x);
  }
}

void check_accepted(const TableHeader& h, const uint8_t* p, uint64_t file_bytes) {
  REQUIRE(h.version == 1 && h.flags == 0 &&
          (h.width == 32 || h.width == 64 || h.width == 128 || h.width == 256));
  REQUIRE(h.table < h.table_count && h.prefix_bits <= (h.width < 64 ? 32 : 64) &&
          h.flips <= h.prefix_bits);
  REQUIRE(h.block_bytes >= kMinBlockBytes && h.block_bytes <= kMaxBlockBytes &&
          __builtin_popcount(h.block_bytes) == 1);
  REQUIRE(h.block_count <= h.fingerprint_count &&
          h.fingerprint_count / kMaxEntries <= h.block_count);
  using Long = unsigned __int128;
  const Long keys = Long{kHeaderBytes} + Long{h.block_count} * h.block_bytes;
  const Long directory = keys + Long{h.block_count} * (h.width == 256   ? 32
                                                       : h.width == 128 ? 16
                                                                        : 8);
  REQUIRE(h.blocks_offset == kHeaderBytes && h.keys_offset == keys &&
          h.directory_offset == directory);
  REQUIRE(h.directory_bits <= kMaxDirectoryBits &&
          directory + ((Long{1} << h.directory_bits) + 1) * 8 == file_bytes);
  for (unsigned i = h.width; i < kMaxWidth; ++i) REQUIRE(h.permutation[i] == 0);
  for (unsigned i = h.width < 64 ? 32 : h.width == 64 ? 64 : 65; i < kSymbols; ++i)
    REQUIRE(h.code_bits[i] == 0);
  fuzz::with_width(h.width == 64    ? 0
                   : h.width == 32  ? 1
                   : h.width == 128 ? 2
                                    : 3,
                   [&](auto width) { check_permutation<decltype(width)>(h); });
  (void)block_seed(h);
  if (h.directory_bits != directory_bits_for(h.block_count)) return;
  TableHeader copy = h;
  uint8_t again[kHeaderBytes];
  write_header(&copy, again);
  REQUIRE(memcmp(again, p, kHeaderBytes) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const unsigned repair = input.byte();
  const uint64_t choice = input.word(4);
  uint64_t file_bytes = input.word(4);
  // On the heap, and exactly as long as the contract says.
  const std::unique_ptr<uint8_t[]> header(new uint8_t[kHeaderBytes]());
  uint8_t* const p = header.get();
  input.fill(p + 8, kBehindCode - 8);
  check_code(p + kCodeAt);
  input.fill(p + kBehindCode, kHeaderBytes - kBehindCode);
  if (repair & kMagic) {
    memcpy(p, "FPSTABLE", 8);
    store32(p + 8, kFormatVersion);
    store32(p + 12, 0);
  } else {
    input.fill(p, 8);
  }
  if (repair & kReserved) {
    memset(p + 88, 0, 40);
    memset(p + kBehindCode, 0, kHeaderBytes - kBehindCode);
  }
  fuzz::Random random(choice);
  if (repair & kRanges) put_ranges(p);
  const unsigned width = load16(p + 16) & 511;
  if (repair & kPermutation) {
    memset(p + kPermutationAt, 0, kMaxWidth);
    if (width && width <= kMaxWidth) fuzz::shuffle(&random, p + kPermutationAt, width);
  }
  if (repair & kCode) {
    fuzz::make_code(random.next(), random.below(256), random.below(4) == 0,
                    is_width(width) ? symbols_of(width) : kSymbols, p + kCodeAt);
    check_code(p + kCodeAt);
  }
  if (repair & kLayout) put_layout(p);
  if (repair & kChecksum) store64(p + kHeaderBytes - 8, xxh64(p, kHeaderBytes - 8, 0));
  if (repair & kSize) file_bytes = load64(p + 72);
  TableHeader parsed;
  Fault fault;
  // A shorter file is refused before its bytes are looked at.
  const Status status =
      parse_header(file_bytes < kHeaderBytes ? nullptr : p, file_bytes, &parsed, &fault);
  REQUIRE(fault.status == status);
  REQUIRE(strcmp(describe(status), "unknown fault") != 0);
  if (status == Status::ok) check_accepted(parsed, p, file_bytes);
  return 0;
}
