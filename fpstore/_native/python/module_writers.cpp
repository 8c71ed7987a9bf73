// What the writers of files need: encoders of blocks, of filters, of the sections of column files
// and of the pages of sealed files.
#include <numeric>

#include "build/filter_encode.hpp"
#include "build/sealed_encode.hpp"
#include "columns/column_table.hpp"
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
    need(is_width(width), "width is 32, 64, 128 or 256");
    need(code_bits.size() == kSymbols, "a code has 65 lengths");
    state->codec = has_code(code_bits.data()) ? Codec::huffman : Codec::elias_fano;
    need(state->codec == Codec::elias_fano ||
             make_encode_table(code_bits.data(), &state->code) == Status::ok,
         "not a complete code over 65 symbols");
    need(block_bytes >= kMinBlockBytes && block_bytes <= kMaxBlockBytes &&
             !(block_bytes & (block_bytes - 1)),
         "block_bytes must be a power of two from 128 to 4096");
    state->seed = seed;
    state->block_bytes = block_bytes;
    state->block_index = state->previous_key = 0;
    state->count = state->low_bits = 0;
  }

  size_t most_blocks(size_t n) const { return fpstore::most_blocks(*state, words(), n); }

  // Writes the blocks that were completed, their keys and entry counts to the front of the arrays;
  // returns how many.
  size_t feed(Rows keys, MutableBytes blocks, MutableRows block_keys, MutableCounts counts) {
    need_words(keys, words());
    need_words(block_keys, words());
    const size_t most = most_blocks(count_of(keys));
    need(blocks.size() >= most * state->block_bytes + kOverread && count_of(block_keys) >= most &&
             counts.size() >= most,
         "an output is too short");
    size_t bad = 0;
    const size_t n = call([&] {
      return kernels().encode(state.get(), keys.data(), count_of(keys),
                              {blocks.data(), block_keys.data(), counts.data()}, &bad);
    });
    if (n == SIZE_MAX) {
      const uint64_t* const got = keys.data() + bad * words();
      const uint64_t* const before = bad ? got - words() : state->last;
      need((bad || entries) &&
               !std::lexicographical_compare(before, before + words(), got, got + words()),
           "the code has no symbol for a key: it is not that of these keys");
      raise("InputError",
            "keys out of order at " + std::to_string(entries + bad) +
                ": each must be greater than the one before",
            "expected"_a = number_of(before, words()), "got"_a = number_of(got, words()));
    }
    entries += count_of(keys);
    return n;
  }

  nb::tuple finish() {
    Buffer<uint8_t> block(state->block_bytes + kOverread);
    Buffer<uint64_t> key(words());
    Buffer<uint32_t> count(1);
    const size_t n = kernels().encode_finish(state.get(), {block.get(), key.get(), count.get()});
    return nb::make_tuple(block.array(n * state->block_bytes), key.array(n, words()),
                          count.array(n));
  }
};

// Writes a filter file: feed() the keys of the table, then finish(); then there is the header.
struct FilterCutter {
  std::optional<FilterSections> sections;

  FilterCutter(Bytes permutation, uint64_t fingerprint_count, uint64_t set_digest,
               std::tuple<uint16_t, uint16_t> place,
               std::tuple<uint16_t, uint16_t, uint16_t> shape) {
    auto header =
        make_header<FilterHeader>(permutation, set_digest, std::get<0>(place), std::get<1>(place));
    std::tie(header.prefix_bits, header.bucket_bits, header.bits_per_prefix) = shape;
    header.fingerprint_count = fingerprint_count;
    (void)bytes_of_header(&header);  // refuses a shape that the format does not allow
    sections.emplace(header);
  }

  // The pages that the next keys complete.
  nb::object feed(Rows keys) {
    need_words(keys, words_of(sections->header.width));
    return taken(call([&] { return sections->feed(keys.data(), count_of(keys)); }));
  }
  nb::object finish() {
    return taken(call([&] { return sections->finish(); }));
  }
  nb::object taken(size_t size) {
    Buffer<uint8_t> out(size);
    sections->take(size, out.get());
    return out.array(size);
  }

  nb::bytes header_bytes() { return bytes_of_header(&sections->header); }
  static nb::bytes bytes_of_header(FilterHeader* header) {
    uint8_t bytes[kHeaderBytes];
    Fault fault;
    if (write_filter_header(header, bytes, &fault) != Status::ok)
      throw nb::value_error((std::string("no such filter: ") + describe(fault.status)).c_str());
    return bytes_of(bytes, kHeaderBytes);
  }
};

// Cuts what a writer is given into the sections of a file that a header describes.
struct ColumnCutter {
  ColumnHeader header;
  std::vector<uint8_t> header_bytes = std::vector<uint8_t>(kHeaderBytes);
  ColumnFeed state;
  std::vector<uint32_t> bucket_counts;

  ColumnCutter(uint16_t kind, uint64_t count, uint64_t set_digest, Bytes permutation,
               uint16_t bucket_bits, uint16_t tag_bits, uint16_t allowance, uint16_t table,
               uint16_t table_count)
      : header(make_header<ColumnHeader>(permutation, set_digest, table, table_count)) {
    header.kind = static_cast<ColumnKind>(kind);
    header.bucket_bits = bucket_bits;
    header.tag_bits = tag_bits;
    header.allowance = allowance;
    header.count = count;
    Fault fault;
    if (write_column_header(&header, header_bytes.data(), &fault) != Status::ok)
      throw nb::value_error(
          (std::string("no such column table: ") + describe_column(fault.status)).c_str());
    bucket_counts.resize(uint64_t{1} << bucket_bits);
  }

  [[noreturn]] void raise_order(uint64_t got) const {
    raise("InputError",
          "keys out of order: each must be greater than the one before, with no bit below its rest",
          "expected"_a = state.any ? state.last[0] : 0, "got"_a = got);
  }

  // (tags, rests) of sorted keys.
  nb::tuple cut(Words keys) {
    if (header.kind == ColumnKind::rows) throw nb::type_error("a row file holds rows");
    Buffer<uint8_t> tags(2 * keys.size()), rests(rest_bytes(header) * keys.size() + 1);
    const size_t n = call([&] {
      return cut_keys(header, keys.data(), keys.size(), &state, bucket_counts.data(), tags.get(),
                      rests.get());
    });
    if (n < keys.size()) raise_order(keys.data()[n]);
    return nb::make_tuple(tags.array(2 * n), rests.array(rest_bytes(header) * n));
  }

  void count(Rows rows) {
    if (header.kind != ColumnKind::rows) throw nb::type_error("only a row file holds rows");
    need_words(rows, words_of(header.width));
    const size_t n = call([&] {
      return count_rows(header, rows.data(), count_of(rows), &state, bucket_counts.data());
    });
    if (n < count_of(rows)) raise_order(rows.data()[words_of(header.width) * n]);
  }

  nb::object directory() const {
    std::vector<uint32_t> starts(bucket_counts.size() + 1);
    std::partial_sum(bucket_counts.begin(), bucket_counts.end(), starts.begin() + 1);
    return array_of(starts);
  }
};

// Appends values of ascending keys: value i is at [offsets[i], offsets[i + 1]).
void append_values(SealedEncoder& encoder, Rows keys, Bytes values, Words offsets) {
  need_words(keys, encoder.key_words());
  const size_t n = count_of(keys), words = encoder.key_words();
  need(count_of_spans(values.size(), offsets) == n, kUnequal);
  const size_t done = call([&] {
    size_t i = 0;
    const auto append = [&](uint64_t from, uint64_t to) {
      return encoder.append(keys.data() + i * words, values.data() + from, to - from);
    };
    while (i < n && append(offsets.data()[i], offsets.data()[i + 1])) ++i;
    return i;
  });
  if (done < n) raise_disorder(encoder.last_key(), keys.data() + done * words, words);
}

// Moves the pending pages out; returns their bytes.
size_t move_pages(SealedEncoder& encoder, MutableBytes out) {
  const uint64_t size = encoder.pending_bytes();
  need(out.size() >= size, "an output is too short");
  call([&] { encoder.move_pages(out.data()); });
  return size;
}

// (the metadata pages, the checksums); the last pages are pending.
nb::tuple finish_pages(SealedEncoder& encoder) {
  call([&] { encoder.finish(); });
  const auto bytes = [](const std::vector<uint8_t>& data) {
    return bytes_of(data.data(), data.size());
  };
  return nb::make_tuple(bytes(encoder.metadata()), bytes(encoder.checksums()));
}

nb::object checksums_of(Bytes data, uint64_t seed, uint64_t first) {
  const size_t n = (data.size() + kPageBytes - 1) / kPageBytes;
  Buffer<uint64_t> out(n);
  call([&] { page_checksums(data.data(), data.size(), seed, first, out.get()); });
  return out.array(n);
}

// The keys of references to rows from number first on of a file of count rows; not sorted.
nb::object reference_keys(Rows rows, uint64_t first, uint64_t count, Bytes permutation,
                          unsigned bucket_bits) {
  const unsigned each = words_in(rows);
  const size_t n = count_of(rows);
  ColumnHeader h;
  h.kind = ColumnKind::references;
  h.count = count;
  const unsigned head = bucket_bits + kTagBits, rest = rest_bits_for(h);
  need(each > 1 && permutation.size() == 64 * each,
       "rows are an array of shape (n, 2) or (n, 4), with a permutation of their bits");
  need(bucket_bits <= kMaxBucketBits && head + rest <= 64 && first <= count && n <= count - first,
       "bucket, tag and row number do not fit a key");
  need(is_permutation(permutation.data(), 64 * each), "not a permutation");
  Permutation forward, inverse;
  make_permutation(permutation.data(), head, &forward, &inverse);
  Buffer<uint64_t> out(n);
  call([&] {
    for (size_t i = 0; i < n; ++i)
      out.get()[i] =
          gather(forward, rows.data() + each * i) | (rest ? (first + i) << (64 - head - rest) : 0);
  });
  return out.array(n);
}

}  // namespace

void bind_writers(nb::module_& m) {
  nb::class_<BlockEncoder>(m, "BlockEncoder")
      .def(nb::init<Bytes, uint32_t, uint64_t, unsigned>(), "code_bits"_a, "block_bytes"_a,
           "seed"_a, "width"_a = 64)
      .def("most_blocks", &BlockEncoder::most_blocks, "key_count"_a)
      .def("feed", &BlockEncoder::feed, "keys"_array, "blocks"_array, "block_keys"_array,
           "counts"_array)
      .def("finish", &BlockEncoder::finish);
  nb::class_<FilterCutter>(m, "FilterCutter")
      .def(nb::init<Bytes, uint64_t, uint64_t, std::tuple<uint16_t, uint16_t>,
                    std::tuple<uint16_t, uint16_t, uint16_t>>(),
           "permutation"_a, "fingerprint_count"_a, "set_digest"_a, "place"_a, "shape"_a)
      .def_prop_ro("header", &FilterCutter::header_bytes)
      .def("feed", &FilterCutter::feed, "keys"_array)
      .def("finish", &FilterCutter::finish);
  using H = ColumnHeader;
  nb::class_<ColumnCutter> cutter(m, "ColumnCutter");
  bind_fields(cutter, "tags_offset", &H::tags_offset, "rest_offset", &H::rest_offset,
              "checksums_offset", &H::checksums_offset, "file_bytes", &H::file_bytes, "seed",
              &H::checksum);
  cutter
      .def(nb::init<uint16_t, uint64_t, uint64_t, Bytes, uint16_t, uint16_t, uint16_t, uint16_t,
                    uint16_t>(),
           "kind"_a, "count"_a, "set_digest"_a, "permutation"_a, "bucket_bits"_a, "tag_bits"_a,
           "allowance"_a, "table"_a, "table_count"_a)
      .def_prop_ro(
          "header",
          [](const ColumnCutter& c) { return bytes_of(c.header_bytes.data(), kHeaderBytes); })
      .def("cut", &ColumnCutter::cut, "keys"_array)
      .def("count", &ColumnCutter::count, "rows"_array)
      .def("directory", &ColumnCutter::directory);
  nb::class_<SealedEncoder>(m, "SealedEncoder")
      .def(nb::init<unsigned>(), "key_words"_a)
      .def_prop_ro("pending_bytes", &SealedEncoder::pending_bytes)
      .def_prop_ro("largest", &SealedEncoder::largest)
      .def_prop_ro("used_bytes", &SealedEncoder::used_bytes)
      .def_prop_ro("digest", &SealedEncoder::digest)
      .def("append", &append_values, "keys"_array, "values"_array, "offsets"_array)
      .def("move_pages", &move_pages, "out"_array)
      .def("finish", &finish_pages);
  m.def("page_checksums", &checksums_of, "data"_a, "seed"_a, "first"_a);
  m.def("reference_keys", &reference_keys, "rows"_array, "first"_a, "count"_a, "permutation"_a,
        "bucket_bits"_a);
}

}  // namespace fpstore
