// What the targets that look at blocks share: codes and permutations, an in-memory table with right
// checksums, the slow decoder.
#pragma once
#include <algorithm>
#include <memory>

#include "format/block_sum.hpp"
#include "rows.hpp"
#include "isa/kernels.hpp"

using namespace fpstore;

namespace {

constexpr unsigned kCodes = 64;
constexpr unsigned kPermutations = 16;
constexpr uint64_t kMinRoom = 2 * 65536;  // for two blocks, whatever counts they claim
constexpr uint64_t kRoom = 2 * kMinRoom;

// All of it for fingerprints of one width.
template <class W>
struct Blocks {
  using Row = typename W::Row;
  using Rows = std::vector<Row>;
  using Values = std::pmr::vector<Row>;
  static constexpr unsigned kCodeSymbols = symbols_of(W::kBits);

  struct Code {
    uint8_t lengths[kSymbols];
    EncodeTable encode;
    DecodeTable decode;
    std::unique_ptr<fuzz::SlowCode> slow;
    Codec codec;  // elias_fano: keys are chosen by the code, but not encoded by it
  };

  struct World {
    Code codes[kCodes];
    Permutation forward[kPermutations];
    Permutation inverse[kPermutations];
    std::vector<const Kernels*> sets;
    std::unique_ptr<Row[]> out{new Row[kRoom]};
  };

  static const World& world() {
    static const World* const made = [] {
      World* w = new World;
      for (unsigned i = 0; i < kCodes; ++i) {
        Code& code = w->codes[i];
        fuzz::make_code(i, i % 4 * 85, i % 8 == 7, kCodeSymbols, code.lengths);
        REQUIRE(make_encode_table(code.lengths, &code.encode) == Status::ok);
        REQUIRE(make_decode_table(code.lengths, &code.decode) == Status::ok);
        code.slow.reset(new fuzz::SlowCode(code.lengths));
        code.codec = i % 3 == 1 ? Codec::elias_fano : Codec::huffman;
      }
      fuzz::Random random(1);
      for (unsigned i = 0; i < kPermutations; ++i) {
        uint8_t source[W::kBits];
        fuzz::shuffle(&random, source, W::kBits);
        if (i < 8)
          for (unsigned k = 0; k < W::kBits; ++k)
            source[k] = static_cast<uint8_t>((k + W::kBits / 8 * i) % W::kBits);
        make_permutation(source, W::kBits, w->forward + i, w->inverse + i);
      }
      w->sets = fuzz::all_kernels(W::kBits);
      return w;
    }();
    return *made;
  }

  // A code that has all symbols, of this codec.
  static const Code* code_of_all(unsigned choice, Codec codec) {
    const World& w = world();
    const auto fits = [codec](const Code& code) {
      return code.codec == codec && code.slow->symbols.size() == kCodeSymbols;
    };
    while (!fits(w.codes[choice % kCodes])) ++choice;
    return &w.codes[choice % kCodes];
  }

  struct Table {
    const Code* code;
    unsigned permutation;
    uint32_t block_bytes;
    uint64_t seed;
    std::vector<uint8_t> blocks;
    Rows keys;
    bool lies_of_ties =
        false;  // an entry has the leading word of the one before, but its symbol says otherwise
    unsigned directory_bits;
    std::vector<uint64_t> directory;

    uint64_t count() const { return keys.size(); }
    uint32_t header_bytes() const {
      return code->codec == Codec::huffman ? kHuffmanHeaderBytes : kEliasFanoHeaderBytes;
    }
    uint8_t* block(uint64_t b) { return blocks.data() + b * block_bytes; }
    void seal(uint64_t b) {
      const uint64_t previous = b ? leading_word(keys[b - 1]) : 0;
      store32(block(b), block_sum(block(b), block_bytes,
                                  seed + leading_word(keys[b]) * xxh::kP1 + previous * xxh::kP2 +
                                      b * xxh::kP3));
    }
  };

  // The same of a block of the Elias-Fano codec.
  static bool slow_elias_fano(Table* t, uint64_t b, Values* out) {
    const uint8_t* p = t->block(b);
    const uint32_t count = load16(p + 4), low_bits = load16(p + 6),
                   room = (t->block_bytes - kEliasFanoHeaderBytes) * 8;
    out->clear();
    if (count == 0 || count > room || count * W::kRestBytes * 8 > room || low_bits > W::kLast)
      return false;
    const unsigned shift = low_bits + 63 - W::kLast;
    const uint64_t before = b ? leading_word(t->keys[b - 1]) : 0, key = leading_word(t->keys[b]);
    if (key < before) return false;
    const uint64_t zeros = (key >> shift) - (before >> shift);
    if (zeros > room || zeros + count * (1 + low_bits + W::kRestBytes * 8) > room) return false;
    const auto bit = [p](uint64_t at) {
      return static_cast<uint64_t>(p[kEliasFanoHeaderBytes + at / 8] >> at % 8 & 1);
    };
    const uint8_t* rest = p + t->block_bytes - count * W::kRestBytes;
    uint64_t high = before >> shift;
    for (uint64_t at = 0; at < count + zeros; ++at) {
      if (!bit(at)) {
        ++high;
        continue;
      }
      if (out->size() == count) return false;
      Row x{};
      fuzz::word_at(x, 0) = high << shift;
      for (uint32_t k = 0; k < low_bits; ++k)
        fuzz::word_at(x, 0) |= bit(count + zeros + out->size() * low_bits + k)
                               << (k + 63 - W::kLast);
      for (unsigned i = 1; i < W::kWords; ++i, rest += 8) fuzz::word_at(x, i) = load64(rest);
      out->push_back(x);
    }
    return out->size() == count;
  }

  // What the format page says that block b holds; false when it does not decode. Loosely: its codes
  // may end before their stream.
  static bool slow_decode(Table* t, uint64_t b, Values* out, bool loosely = false) {
    if (t->code->codec == Codec::elias_fano) return slow_elias_fano(t, b, out);
    const uint8_t* p = t->block(b);
    const uint32_t count = load16(p + 4), end = kHuffmanHeaderBytes * 8 + load16(p + 6);
    out->clear();
    if (count == 0 || count > kMaxEntries ||
        count * W::kRestBytes > t->block_bytes - kHuffmanHeaderBytes)
      return false;
    const uint8_t* rest = p + t->block_bytes - count * W::kRestBytes;
    const uint32_t bits = (t->block_bytes - count * W::kRestBytes) * 8;
    if (end > bits) return false;
    uint64_t e = load64(p + 8);
    if (e & ~top_mask(W::kLast + 1)) return false;
    const auto add = [&] {
      Row x{};
      fuzz::word_at(x, 0) = e;
      for (unsigned i = 1; i < W::kWords; ++i, rest += 8) fuzz::word_at(x, i) = load64(rest);
      out->push_back(x);
    };
    add();
    std::pmr::vector<uint8_t> symbols;
    uint32_t at = kHuffmanHeaderBytes * 8, tail = end;
    for (uint32_t i = 1; i < count; ++i) {
      const int h = t->code->slow->decode(p, &at, end);
      if (h < 0) return false;
      symbols.push_back(static_cast<uint8_t>(h));
    }
    if (at != end && !loosely) return false;
    for (const unsigned h : symbols) {
      if (tail + tail_bits(h) > bits) return false;
      if (h < 64) {
        const uint64_t before = e;
        e = (h ? e >> (64 - h) << (64 - h) : 0) | uint64_t{1} << (63 - h);
        for (unsigned bit = h + 1; bit <= W::kLast; ++bit, ++tail)
          e |= static_cast<uint64_t>(p[tail / 8] >> (7 - tail % 8) & 1) << (63 - bit);
        t->lies_of_ties |= W::kWide && e == before;
      }
      add();
    }
    return true;
  }

  // Bits of the leading word behind the first differing one.
  static uint32_t tail_bits(unsigned h) { return h < 64 ? W::kLast - h : 0; }

  // A bit that a key may be the first to have, which has this symbol: 64 is any behind the leading
  // word. Negative: there is none.
  static int free_bit(const Row& e, unsigned h, fuzz::Random* random) {
    if (h < 64) return fuzz::has_bit(e, h) ? -1 : static_cast<int>(h);
    int bit = static_cast<int>(64 + random->below(W::kBits - 63) - 1);
    while (bit >= 64 && fuzz::has_bit(e, static_cast<unsigned>(bit))) --bit;
    return bit >= 64 ? bit : -1;
  }

  // Ascending keys, by their h: each input byte gives the h of the next, or the nearest smaller one
  // that ascends and has a code.
  static Rows make_keys(const uint8_t lengths[kSymbols], unsigned most, fuzz::Input* input) {
    const Row first = fuzz::input_row<W>(input);
    fuzz::Random random(leading_word(first));
    Rows keys{first};
    for (unsigned n = input->byte() % (most + 1); n; --n) {
      // Wide keys often share their leading words.
      const unsigned choice =
          (input->left() ? input->byte() : random.below(256)) % (W::kWide ? 96 : kCodeSymbols);
      int h = static_cast<int>(std::min(choice, kCodeSymbols - 1)), bit = -1;
      while (h >= 0 &&
             (!lengths[h] || (bit = free_bit(keys.back(), static_cast<unsigned>(h), &random)) < 0))
        --h;
      if (h < 0) break;
      keys.push_back(fuzz::above<W>(keys.back(), static_cast<unsigned>(bit), &random));
    }
    return keys;
  }

  // A sound table; these sets must encode it alike.
  static void encode_table(Table* t, const Rows& keys, const std::vector<const Kernels*>& sets) {
    static Encoder* const e = new Encoder;
    for (const Kernels* set : sets) {
      e->codec = t->code->codec;
      e->low_bits = 0;
      e->code = t->code->encode;
      e->seed = t->seed;
      e->block_bytes = t->block_bytes;
      e->block_index = e->previous_key = 0;
      e->count = 0;
      // An entry takes at most so many bits, and a closed block has room for less.
      constexpr size_t entry = 16 + 64 + W::kRestBytes * 8;
      const size_t most =
          keys.size() * entry / ((t->block_bytes - kHuffmanHeaderBytes) * 8 - entry) + 2;
      std::vector<uint8_t> blocks(most * t->block_bytes + kOverread);
      Rows block_keys(most);
      std::vector<uint32_t> counts(most);
      size_t bad = 0;
      size_t n = set->encode(e, fuzz::words(keys), keys.size(),
                             {blocks.data(), fuzz::words(&block_keys), counts.data()}, &bad);
      REQUIRE(n < keys.size());
      n += set->encode_finish(e, {blocks.data() + n * t->block_bytes,
                                  fuzz::words(&block_keys) + n * W::kWords, &counts[n]});
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

  // Lengths for a block of the Elias-Fano codec, of input bytes: low bits, and where something is
  // put right as many entries as there are ones in the high parts, which end with a one, and a key
  // whose high part is that of the last.
  static void raw_streams(Table* t, uint64_t b, unsigned repair, uint32_t* entries,
                          uint32_t* low_bits, fuzz::Input* input) {
    uint8_t* const p = t->block(b);
    input->fill(p + kEliasFanoHeaderBytes, 8);
    if (repair & 8) *low_bits %= 24;
    if (!(repair & 16)) return;
    const uint32_t room = (t->block_bytes - kEliasFanoHeaderBytes) * 8;
    const auto one = [p](uint32_t at) { return p[kEliasFanoHeaderBytes + at / 8] >> at % 8 & 1; };
    uint32_t ones = 0, length = 0;
    for (uint32_t at = 0, found = 0; at < room; ++at) {
      found += one(at);
      if (at + 1 + found * (*low_bits + W::kRestBytes * 8) > room) break;
      if (one(at)) ones = found, length = at + 1;
    }
    *entries = ones - ((repair & 128) && ones);
    const uint64_t before = b ? leading_word(t->keys[b - 1]) : 0;
    const unsigned shift = std::min<unsigned>(*low_bits + 63 - W::kLast, 63);
    fuzz::word_at(t->keys[b], 0) = ((before >> shift) + length - ones) << shift;
  }

  // Blocks of input bytes; byte by byte, the input says what is put right.
  static void raw_table(Table* t, unsigned most, fuzz::Input* input) {
    const unsigned count = 1 + input->byte() % most;
    t->blocks.resize(count * t->block_bytes);
    t->keys.resize(count);
    for (unsigned b = 0; b < count; ++b) {
      const unsigned repair = input->byte();
      uint8_t* const p = t->block(b);
      store64(p + 8, input->word(1 + repair % 8));
      uint32_t entries = static_cast<uint32_t>(input->word(2));
      uint32_t code_length = static_cast<uint32_t>(input->word(2));
      if (W::kBits < 64 && repair & 3) store64(p + 8, load64(p + 8) & top_mask(W::kBits));
      const Row key = fuzz::input_row<W>(input);
      input->fill(p + kHuffmanHeaderBytes,
                  std::min<size_t>(t->block_bytes - kHuffmanHeaderBytes, input->byte() * 16u));
      if (repair & 8) entries &= 63;
      if (repair & 16) {
        // Code stream and tails that fit: as many entries as there is room for.
        uint32_t at = kHuffmanHeaderBytes * 8, tails = 0, n = 0;
        for (; n + 1 < entries; ++n) {
          uint32_t next = at;
          const int h = t->code->slow->decode(p, &next, t->block_bytes * 8);
          const uint32_t more = h < 0 ? 0 : tail_bits(static_cast<unsigned>(h)),
                         rests = (n + 2) * W::kRestBytes;
          if (h < 0 || rests > t->block_bytes || next + tails + more > (t->block_bytes - rests) * 8)
            break;
          at = next;
          tails += more;
        }
        entries = n + 1;
        code_length = at - kHuffmanHeaderBytes * 8;
        if ((repair & 128) && entries > 1) --entries;  // than there are codes
      }
      t->keys[b] = key;
      if (t->code->codec == Codec::elias_fano)
        raw_streams(t, b, repair, &entries, &code_length, input);
      store16(p + 4, static_cast<uint16_t>(entries));
      store16(p + 6, static_cast<uint16_t>(code_length));
      Values values;
      // A block that is wrong in nothing but its lengths has the key that a careless decoder finds.
      t->keys[b] = slow_decode(t, b, &values, repair & 64) && (repair & 32) ? values.back() : key;
    }
  }

  // Changes bytes of a sound table.
  static void damage(Table* t, fuzz::Input* input) {
    for (unsigned n = input->byte() % 4; n; --n) {
      const size_t place = input->word(2) % t->blocks.size();
      t->blocks[place] ^= input->byte();
    }
    for (unsigned n = input->byte() % 3 / 2; n; --n) {
      Row& key = t->keys[input->byte() % t->count()];
      fuzz::word_at(key, input->byte() % W::kWords) ^= input->word();
    }
  }

  // The right directory of the keys, which need not ascend.
  static std::vector<uint64_t> right_directory(const Table& t) {
    std::vector<uint64_t> directory;
    for (uint64_t s = 0; s < uint64_t{1} << t.directory_bits; ++s) {
      const uint64_t bound = t.directory_bits ? s << (64 - t.directory_bits) : 0;
      directory.push_back(static_cast<uint64_t>(
          std::count_if(t.keys.begin(), t.keys.end(),
                        [bound](const Row& key) { return leading_word(key) < bound; })));
    }
    directory.push_back(t.count());
    return directory;
  }

  // A table in memory of its own: blocks and kOverread bytes that hold something else each time,
  // and exact indexes.
  struct Copy {
    std::unique_ptr<uint8_t[]> blocks;
    std::unique_ptr<uint64_t[]> keys, key_rests, directory;
    const Code* code = nullptr;
    TableView view;

    void load(const Table& t, uint8_t behind, uint64_t fingerprint_count) {
      blocks.reset(new uint8_t[t.blocks.size() + kOverread]);
      keys.reset(new uint64_t[t.count()]);
      directory.reset(new uint64_t[t.directory.size()]);
      std::copy(t.blocks.begin(), t.blocks.end(), blocks.get());
      memset(blocks.get() + t.blocks.size(), behind, kOverread);
      key_rests.reset(new uint64_t[t.count() * W::kRestWords]);
      for (size_t i = 0; i < t.count(); ++i) {
        keys[i] = leading_word(t.keys[i]);
        for (unsigned k = 0; k < W::kRestWords; ++k)
          key_rests[i * W::kRestWords + k] = word_of(t.keys[i], k + 1);
      }
      std::copy(t.directory.begin(), t.directory.end(), directory.get());
      if (code != t.code) view.code = t.code->decode;  // large: not copied needlessly
      code = t.code;
      view.blocks = blocks.get();
      view.keys = keys.get();
      view.key_rests = key_rests.get();
      view.directory = directory.get();
      view.block_count = t.count();
      view.fingerprint_count = fingerprint_count;
      view.seed = t.seed;
      view.block_bytes = t.block_bytes;
      view.codec = t.code->codec;
      view.directory_bits = t.directory_bits;
      view.forward = world().forward[t.permutation];
      view.inverse = world().inverse[t.permutation];
    }
  };
};

}  // namespace
