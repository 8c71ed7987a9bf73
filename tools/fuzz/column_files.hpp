// What the targets that look at column tables share: files in memory, and a set with the tables of
// a ring and queries.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "columns/request.hpp"
#include "input.hpp"

using namespace fpstore;

namespace {

using WordVector = std::pmr::vector<uint64_t>;

// A file in memory of exactly its length, and what was opened of it.
struct File {
  ColumnHeader header;
  std::unique_ptr<uint8_t[]> data;
  uint64_t bytes = 0;
  std::unique_ptr<uint64_t[]> seen;
  ColumnView view;

  void make(const uint64_t* entries, size_t n) {
    uint8_t first[kHeaderBytes];
    Fault fault;
    REQUIRE(write_column_header(&header, first, &fault) == Status::ok);
    bytes = header.file_bytes;
    data.reset(new uint8_t[bytes]());
    memcpy(data.get(), first, kHeaderBytes);
    std::pmr::vector<uint32_t> counts(uint64_t{1} << header.bucket_bits);
    ColumnFeed feed;
    if (header.kind == ColumnKind::rows) {
      REQUIRE(count_rows(header, entries, n, &feed, counts.data()) == n);
      if (n) memcpy(data.get() + header.tags_offset, entries, 8 * words_of(header.width) * n);
    } else {
      uint8_t* const rests = data.get() + header.rest_offset;
      REQUIRE(cut_keys(header, entries, n, &feed, counts.data(), data.get() + header.tags_offset,
                       rests) == n);
    }
    uint32_t sum = 0;
    for (size_t i = 0; i < counts.size(); sum += counts[i++])
      store32(data.get() + header.directory_offset + 4 * i, sum);
    store32(data.get() + header.directory_offset + 4 * counts.size(), sum);
    sign();
  }
  void sign() {
    page_checksums(data.get() + kHeaderBytes, header.checksums_offset - kHeaderBytes,
                   header.checksum, 0,
                   reinterpret_cast<uint64_t*>(data.get() + header.checksums_offset));
  }
  bool open() {
    Fault fault;
    if (parse_column_header(data.get(), bytes, &header, &fault) != Status::ok) return false;
    const uint64_t words = seen_words(kHeaderBytes, header.checksums_offset);
    seen.reset(new uint64_t[words]());
    make_view(header, data.get(), seen.get(), &view);
    return true;
  }
};

struct Case {
  unsigned width, words, tables, bucket_bits;
  WordVector set;  // ascending, one fingerprint after the other
  WordVector queries;
  File rows;
  File files[8];
  RingTable ring[8];
  int16_t thresholds[8];
  unsigned radius;

  bool wide() const { return width > 64; }
  size_t count() const { return set.size() / words; }
  Ring whole() const { return Ring{ring, tables, wide() ? &rows.view : nullptr}; }
};

uint64_t low_bits(unsigned width) { return width < 64 ? ~top_mask(width) : 0; }

// Fingerprints in which few bits vary, or all: some of the input's bytes each.
void draw_words(fuzz::Input* input, const Case& c, size_t n, WordVector* out) {
  const unsigned kind = input->byte();
  fuzz::Random random(input->word(2));
  uint64_t base[kMaxWords], varying[kMaxWords];
  for (unsigned w = 0; w < kMaxWords; ++w) {
    base[w] = random.next();
    varying[w] = kind % 4 == 0
                     ? ~uint64_t{0}
                     : random.next() & random.next() & (kind % 2 ? random.next() : ~uint64_t{0});
  }
  for (size_t i = 0; i < n; ++i) {
    fuzz::Random each(input->left() ? input->word(2) : random.next());
    for (unsigned w = 0; w < c.words; ++w)
      out->push_back((base[w] ^ (each.next() & varying[w])) & ~low_bits(c.width));
  }
}

void sort_set(Case* c) {
  std::pmr::vector<size_t> order(c->count());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto at = [c](size_t i) { return c->set.data() + c->words * i; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::lexicographical_compare(at(a), at(a) + c->words, at(b), at(b) + c->words);
  });
  WordVector sorted;
  for (size_t i : order)
    if (sorted.empty() || !std::equal(at(i), at(i) + c->words, sorted.end() - c->words))
      sorted.insert(sorted.end(), at(i), at(i) + c->words);
  c->set = sorted;
}

// Deals the bits to blocks at random, and makes the files.
void make_files(fuzz::Input* input, Case* c) {
  fuzz::Random random(input->word(2));
  uint8_t order[kMaxWidth];
  for (unsigned i = 0; i < c->width; ++i) order[i] = static_cast<uint8_t>(i);
  for (unsigned i = c->width - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  const size_t n = c->count();
  uint64_t digest = 0;
  for (size_t i = 0; i < n; ++i)
    digest +=
        xxh64(reinterpret_cast<const uint8_t*>(c->set.data() + c->words * i), 8 * c->words, 0);
  const auto fill = [&](ColumnHeader* h, ColumnKind kind) {
    *h = ColumnHeader{};
    h->width = static_cast<uint16_t>(c->width);
    h->kind = kind;
    h->bucket_bits = static_cast<uint16_t>(c->bucket_bits);
    h->count = n;
    h->set_digest = digest;
    for (unsigned i = 0; i < c->width; ++i) h->permutation[i] = static_cast<uint8_t>(i);
  };
  if (c->wide()) {
    fill(&c->rows.header, ColumnKind::rows);
    c->rows.header.tag_bits = 0;
    c->rows.make(c->set.data(), n);
  }
  const unsigned block = c->width / c->tables;
  for (unsigned i = 0; i < c->tables; ++i) {
    File& file = c->files[i];
    ColumnHeader& h = file.header;
    fill(&h, c->wide() ? ColumnKind::references : ColumnKind::copies);
    h.table = static_cast<uint16_t>(i);
    h.table_count = static_cast<uint16_t>(c->tables);
    const unsigned following = c->tables > 1 ? block : c->width - c->bucket_bits;
    h.tag_bits = static_cast<uint16_t>(following < kTagBits ? following : kTagBits);
    bool used[kMaxWidth] = {};
    unsigned at = 0;
    const auto take = [&](unsigned from, unsigned bits) {
      for (unsigned j = 0; j < bits; ++j, used[h.permutation[at - 1]] = true)
        h.permutation[at++] = order[(from + j) % c->width];
    };
    take(i * block, c->bucket_bits);
    take(c->tables > 1 ? (i + 1) % c->tables * block : c->bucket_bits, h.tag_bits);
    for (unsigned j = 0; j < c->width; ++j)
      if (!used[j]) h.permutation[at++] = static_cast<uint8_t>(j);
    Permutation forward, inverse;
    const unsigned head = c->bucket_bits + kTagBits, rest = rest_bits_for(h);
    make_permutation(h.permutation, c->wide() ? head : c->width, &forward, &inverse);
    WordVector keys;
    for (size_t f = 0; f < n; ++f)
      keys.push_back(gather(forward, c->set.data() + c->words * f) |
                     (c->wide() && rest ? uint64_t{f} << (64 - head - rest) : 0));
    std::sort(keys.begin(), keys.end());
    file.make(keys.data(), n);
    RingTable& r = c->ring[i] = RingTable{&file.view, {}, {}};
    for (unsigned j = 0; j < c->bucket_bits + h.tag_bits; ++j) {
      uint64_t* const mask = j < c->bucket_bits ? r.bucket_mask : r.tag_mask;
      mask[h.permutation[j] / 64] |= uint64_t{1} << (63 - h.permutation[j] % 64);
    }
  }
}

void draw(fuzz::Input* input, const fuzz::Chance& chance, Case* c) {
  constexpr unsigned widths[] = {32, 64, 128, 256};
  const unsigned shape = input->byte();
  c->width = widths[shape % 4];
  c->words = c->width <= 64 ? 1 : c->width / 64;
  c->tables = 1 + (shape >> 2) % (c->width == 32 ? 4 : 8);
  c->bucket_bits = kMinBucketBits + (shape >> 5) % 4;
  if (c->bucket_bits > c->width / c->tables) c->bucket_bits = kMinBucketBits;
  const size_t most = chance.scale() == fuzz::Scale::large    ? 3000
                      : chance.scale() == fuzz::Scale::medium ? 200
                                                              : 24;
  draw_words(input, *c, input->word(2) % (most + 1), &c->set);
  sort_set(c);
  draw_words(input, *c, input->byte() % 5, &c->queries);
  for (unsigned near = input->byte() % 4; near && c->count(); --near) {
    const size_t f = input->word(2) % c->count();
    for (unsigned w = 0; w < c->words; ++w)
      c->queries.push_back(c->set[f * c->words + w] ^
                           (uint64_t{1} << (63 - input->byte() % (c->width < 64 ? 32 : 64))));
  }
  c->radius = input->byte() % (2 * c->tables + 2);
  for (unsigned i = 0; i < c->tables; ++i) c->thresholds[i] = -1;
  for (unsigned left = c->radius + 1; left; --left)
    ++c->thresholds[input->left() ? input->byte() % c->tables : left % c->tables];
  for (unsigned i = 0; i < c->tables; ++i)
    if (c->thresholds[i] > 3 && chance.scale() != fuzz::Scale::small)
      c->radius = 0;  // fewer look-ups of a large case
}

}  // namespace
