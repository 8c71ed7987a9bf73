// The class BlockEncoder of the module.
#include "format/header.hpp"
#include "format/huffman.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

// Encodes one table: feed() sorted permuted keys, then finish().
struct BlockEncoder {
  std::unique_ptr<Encoder> state{new Encoder};
  unsigned width;
  uint64_t entries = 0;

  const Kernels& kernels() const { return fpstore::kernels(width); }
  unsigned words() const { return words_of(width); }

  BlockEncoder(Bytes code_bits, uint32_t block_bytes, uint64_t seed, unsigned bits) : width(bits) {
    if (!is_width(width)) throw nb::value_error("width is 32, 64, 128 or 256");
    if (code_bits.size() != kSymbols) throw nb::value_error("a code has 65 lengths");
    state->codec = has_code(code_bits.data()) ? Codec::huffman : Codec::elias_fano;
    if (state->codec == Codec::huffman && make_encode_table(code_bits.data(), &state->code) != Status::ok)
      throw nb::value_error("not a complete code over 65 symbols");
    if (block_bytes < kMinBlockBytes || block_bytes > kMaxBlockBytes || (block_bytes & (block_bytes - 1)))
      throw nb::value_error("block_bytes must be a power of two from 128 to 4096");
    state->seed = seed;
    state->block_bytes = block_bytes;
    state->block_index = state->previous_key = 0;
    state->count = state->low_bits = 0;
  }

  // Room that feed() needs for the blocks of n keys: an entry takes at most a code, a tail and the words behind the leading one, so
  // a closed block holds many.
  size_t most_blocks(size_t n) const {
    const size_t most_bits = kMaxCodeBits + 63 + (words() - 1) * 64;
    const size_t least = std::max<size_t>((state->block_bytes - kHuffmanHeaderBytes) * 8 / most_bits, 1);
    return n / least + 2;
  }

  // Writes the blocks that were completed, their keys and entry counts to the front of the arrays; returns how many.
  size_t feed(Rows keys, MutableBytes blocks, MutableRows block_keys, MutableCounts counts) {
    need_words(keys, words());
    need_words(block_keys, words());
    const size_t most = most_blocks(count_of(keys));
    if (blocks.size() < most * state->block_bytes + kOverread || count_of(block_keys) < most || counts.size() < most)
      throw nb::value_error("an output is too short");
    size_t bad = 0, n;
    {
      ReleasedGil released;
      n = kernels().encode(state.get(), keys.data(), count_of(keys), {blocks.data(), block_keys.data(), counts.data()}, &bad);
    }
    if (n == SIZE_MAX) {
      const uint64_t* const got = keys.data() + bad * words();
      const bool has_before = bad || entries;
      const uint64_t* const before = bad ? got - words() : state->last;
      if (!has_before || std::lexicographical_compare(before, before + words(), got, got + words()))
        throw nb::value_error("the code has no symbol for a key: it is not that of these keys");
      nb::dict facts;
      facts["expected"] = number_of(before, words());
      facts["got"] = number_of(got, words());
      raise("InputError", "keys out of order at " + std::to_string(entries + bad) + ": each must be greater than the one before",
            facts);
    }
    entries += count_of(keys);
    return n;
  }

  nb::tuple finish() {
    Buffer<uint8_t> block(state->block_bytes + kOverread);
    Buffer<uint64_t> key(words());
    Buffer<uint32_t> count(1);
    const size_t n = kernels().encode_finish(state.get(), {block.get(), key.get(), count.get()});
    return nb::make_tuple(block.array(n * state->block_bytes), key.array(n, words()), count.array(n));
  }
};

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<BlockEncoder>(m, "BlockEncoder")
      .def(nb::init<Bytes, uint32_t, uint64_t, unsigned>(), "code_bits"_a, "block_bytes"_a, "seed"_a, "width"_a = 64)
      .def("most_blocks", &BlockEncoder::most_blocks, "key_count"_a)
      .def("feed", &BlockEncoder::feed, nb::arg("keys").noconvert(), nb::arg("blocks").noconvert(),
           nb::arg("block_keys").noconvert(), nb::arg("counts").noconvert())
      .def("finish", &BlockEncoder::finish);
}

}  // namespace fpstore
