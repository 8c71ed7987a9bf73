// What the targets that look at blocks share: codes and permutations, an in-memory table with right checksums, the slow decoder.
#pragma once
#include <algorithm>
#include <memory>

#include "format/xxh64.hpp"
#include "input.hpp"
#include "isa/kernels.hpp"

using namespace fpstore;

namespace {

constexpr unsigned kCodes = 64;
constexpr unsigned kPermutations = 16;
constexpr uint64_t kLeastRoom = 2 * 65536;  // for two blocks, whatever counts they claim
constexpr uint64_t kRoom = 2 * kLeastRoom;

struct Code {
  uint8_t lengths[kSymbols];
  EncodeTable encode;
  DecodeTable decode;
  std::unique_ptr<fuzz::SlowCode> slow;
};

struct World {
  Code codes[kCodes];
  Permutation forward[kPermutations];
  Permutation inverse[kPermutations];
  std::vector<const Kernels*> sets;
  std::unique_ptr<uint64_t[]> out{new uint64_t[kRoom]};
};

inline const World& world() {
  static const World* const made = [] {
    World* w = new World;
    for (unsigned i = 0; i < kCodes; ++i) {
      Code& code = w->codes[i];
      fuzz::make_code(i, i % 4 * 85, i % 8 == 7, code.lengths);
      REQUIRE(make_encode_table(code.lengths, &code.encode) == Status::ok);
      REQUIRE(make_decode_table(code.lengths, &code.decode) == Status::ok);
      code.slow.reset(new fuzz::SlowCode(code.lengths));
    }
    fuzz::Random random(1);
    for (unsigned i = 0; i < kPermutations; ++i) {
      uint8_t source[64];
      fuzz::shuffle(&random, source);
      if (i < 8)
        for (unsigned k = 0; k < 64; ++k) source[k] = static_cast<uint8_t>((k + 8 * i) % 64);
      make_permutation(source, w->forward + i, w->inverse + i);
    }
    w->sets = fuzz::all_kernels();
    return w;
  }();
  return *made;
}

struct Table {
  const Code* code;
  unsigned permutation;
  uint32_t block_bytes;
  uint64_t seed;
  std::vector<uint8_t> blocks;
  std::vector<uint64_t> keys;
  unsigned directory_bits;
  std::vector<uint64_t> directory;

  uint64_t count() const { return keys.size(); }
  uint8_t* block(uint64_t b) { return blocks.data() + b * block_bytes; }
  void seal(uint64_t b) {
    const uint64_t previous = b ? keys[b - 1] : 0;
    store64(block(b), xxh64(block(b) + 8, block_bytes - 8, seed + keys[b] * xxh::kP1 + previous * xxh::kP2 + b * xxh::kP3));
  }
};

using Values = std::pmr::vector<uint64_t>;

// What the format page says that block b holds; false when it does not decode. Loosely: its codes may end before their stream.
inline bool slow_decode(Table* t, uint64_t b, Values* out, bool loosely = false) {
  const uint8_t* p = t->block(b);
  const uint32_t count = load16(p + 16), end = kBlockHeaderBytes * 8 + load16(p + 18);
  out->clear();
  if (count == 0 || count > kMaxEntries || end > t->block_bytes * 8) return false;
  uint64_t e = load64(p + 8);
  out->push_back(e);
  std::pmr::vector<uint8_t> symbols;
  uint32_t at = kBlockHeaderBytes * 8, tail = end;
  for (uint32_t i = 1; i < count; ++i) {
    const int h = t->code->slow->decode(p, &at, end);
    if (h < 0) return false;
    symbols.push_back(static_cast<uint8_t>(h));
  }
  if (at != end && !loosely) return false;
  for (const unsigned h : symbols) {
    if (tail + 63 - h > t->block_bytes * 8) return false;
    e = (h ? e >> (64 - h) << (64 - h) : 0) | uint64_t{1} << (63 - h);
    for (unsigned bit = h + 1; bit < 64; ++bit, ++tail)
      e |= static_cast<uint64_t>(p[tail / 8] >> (7 - tail % 8) & 1) << (63 - bit);
    out->push_back(e);
  }
  return true;
}

// Ascending keys, by their h: each input byte gives the h of the next, or the nearest smaller one that ascends and has a code.
inline std::vector<uint64_t> make_keys(const uint8_t lengths[kSymbols], unsigned most, fuzz::Input* input) {
  const uint64_t first = input->word();
  fuzz::Random random(first);
  std::vector<uint64_t> keys{first};
  for (unsigned n = input->byte() % (most + 1); n; --n) {
    int h = input->left() ? input->byte() & 63 : static_cast<int>(random.below(64));
    const uint64_t e = keys.back();
    while (h >= 0 && ((e >> (63 - h) & 1) || !lengths[h])) --h;
    if (h < 0) break;
    const uint64_t below = h == 63 ? 0 : ~uint64_t{0} >> (h + 1);
    keys.push_back((e & ~below) | uint64_t{1} << (63 - h) | (random.next() & below));
  }
  return keys;
}

// A sound table; these sets must encode it alike.
inline void encode_table(Table* t, const std::vector<uint64_t>& keys, const std::vector<const Kernels*>& sets) {
  static Encoder* const e = new Encoder;
  for (const Kernels* set : sets) {
    e->code = t->code->encode;
    e->seed = t->seed;
    e->block_bytes = t->block_bytes;
    e->block_index = e->previous_key = 0;
    e->count = 0;
    // An entry takes at most 16 + 63 bits, so a closed block is never emptier than this.
    const size_t most = keys.size() * 80 / ((t->block_bytes - kBlockHeaderBytes) * 8) + 2;
    std::vector<uint8_t> blocks(most * t->block_bytes + kOverread);
    std::vector<uint64_t> block_keys(most);
    std::vector<uint32_t> counts(most);
    size_t bad = 0;
    size_t n = set->encode(e, keys.data(), keys.size(), {blocks.data(), block_keys.data(), counts.data()}, &bad);
    REQUIRE(n < keys.size());
    n += set->encode_finish(e, {blocks.data() + n * t->block_bytes, &block_keys[n], &counts[n]});
    REQUIRE(set->encode_finish(e, {nullptr, nullptr, nullptr}) == 0);
    blocks.resize(n * t->block_bytes);
    block_keys.resize(n);
    if (set == sets.front()) {
      t->blocks = blocks;
      t->keys = block_keys;
    }
    REQUIRE(blocks == t->blocks && block_keys == t->keys);
  }
}

// Blocks of input bytes; byte by byte, the input says what is put right.
inline void raw_table(Table* t, unsigned most, fuzz::Input* input) {
  const unsigned count = 1 + input->byte() % most;
  t->blocks.resize(count * t->block_bytes);
  t->keys.resize(count);
  for (unsigned b = 0; b < count; ++b) {
    const unsigned repair = input->byte();
    uint8_t* const p = t->block(b);
    store64(p + 8, input->word(1 + repair % 8));
    uint32_t entries = static_cast<uint32_t>(input->word(2));
    uint32_t code_length = static_cast<uint32_t>(input->word(2));
    const uint64_t key = input->word();
    input->fill(p + kBlockHeaderBytes, std::min<size_t>(t->block_bytes - kBlockHeaderBytes, input->byte() * 16u));
    if (repair & 8) entries &= 63;
    if (repair & 16) {
      // Code stream and tails that fit: as many entries as there is room for.
      uint32_t at = kBlockHeaderBytes * 8, tails = 0, n = 0;
      for (; n + 1 < entries; ++n) {
        uint32_t next = at;
        const int h = t->code->slow->decode(p, &next, t->block_bytes * 8);
        if (h < 0 || next + tails + 63 - static_cast<unsigned>(h) > t->block_bytes * 8) break;
        at = next;
        tails += 63 - static_cast<unsigned>(h);
      }
      entries = n + 1;
      code_length = at - kBlockHeaderBytes * 8;
      if ((repair & 128) && entries > 1) --entries;  // than there are codes
    }
    store16(p + 16, static_cast<uint16_t>(entries));
    store16(p + 18, static_cast<uint16_t>(code_length));
    Values values;
    // A block that is wrong in nothing but its lengths has the key that a careless decoder finds.
    t->keys[b] = slow_decode(t, b, &values, repair & 64) && (repair & 32) ? values.back() : key;
  }
}

// Changes bytes of a sound table.
inline void damage(Table* t, fuzz::Input* input) {
  for (unsigned n = input->byte() % 4; n; --n) {
    const size_t place = input->word(2) % t->blocks.size();
    t->blocks[place] ^= input->byte();
  }
  for (unsigned n = input->byte() % 3 / 2; n; --n) t->keys[input->byte() % t->count()] ^= input->word();
}

// The right directory of the keys, which need not ascend.
inline std::vector<uint64_t> right_directory(const Table& t) {
  std::vector<uint64_t> directory;
  for (uint64_t s = 0; s < uint64_t{1} << t.directory_bits; ++s) {
    const uint64_t bound = t.directory_bits ? s << (64 - t.directory_bits) : 0;
    directory.push_back(static_cast<uint64_t>(
        std::count_if(t.keys.begin(), t.keys.end(), [bound](uint64_t key) { return key < bound; })));
  }
  directory.push_back(t.count());
  return directory;
}

// A table in memory of its own: blocks and kOverread bytes that hold something else each time, and exact indexes.
struct Copy {
  std::unique_ptr<uint8_t[]> blocks;
  std::unique_ptr<uint64_t[]> keys, directory;
  const Code* code = nullptr;
  TableView view;

  void load(const Table& t, uint8_t behind, uint64_t fingerprint_count) {
    blocks.reset(new uint8_t[t.blocks.size() + kOverread]);
    keys.reset(new uint64_t[t.count()]);
    directory.reset(new uint64_t[t.directory.size()]);
    std::copy(t.blocks.begin(), t.blocks.end(), blocks.get());
    memset(blocks.get() + t.blocks.size(), behind, kOverread);
    std::copy(t.keys.begin(), t.keys.end(), keys.get());
    std::copy(t.directory.begin(), t.directory.end(), directory.get());
    if (code != t.code) view.code = t.code->decode;  // large: not copied needlessly
    code = t.code;
    view.blocks = blocks.get();
    view.keys = keys.get();
    view.directory = directory.get();
    view.block_count = t.count();
    view.fingerprint_count = fingerprint_count;
    view.seed = t.seed;
    view.block_bytes = t.block_bytes;
    view.directory_bits = t.directory_bits;
    view.forward = world().forward[t.permutation];
    view.inverse = world().inverse[t.permutation];
  }
};

}  // namespace
