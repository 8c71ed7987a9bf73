// Column tables and row files: probes, scans and look-ups against brute force; damaged bytes: that or an error; sections of any bytes
// under checksums that fit: whatever comes out, nothing is read outside a file.
#include <algorithm>
#include <memory>
#include <utility>

#include "columns/kernels.hpp"
#include "columns/read.hpp"
#include "columns/write.hpp"
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
      REQUIRE(cut_keys(header, entries, n, &feed, counts.data(), data.get() + header.tags_offset, rests) == n);
    }
    uint32_t sum = 0;
    for (size_t i = 0; i < counts.size(); sum += counts[i++]) store32(data.get() + header.directory_offset + 4 * i, sum);
    store32(data.get() + header.directory_offset + 4 * counts.size(), sum);
    sign();
  }
  void sign() {
    page_checksums(data.get() + kHeaderBytes, header.checksums_offset - kHeaderBytes, header.checksum, 0,
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
    varying[w] = kind % 4 == 0 ? ~uint64_t{0} : random.next() & random.next() & (kind % 2 ? random.next() : ~uint64_t{0});
  }
  for (size_t i = 0; i < n; ++i) {
    fuzz::Random each(input->left() ? input->word(2) : random.next());
    for (unsigned w = 0; w < c.words; ++w) out->push_back((base[w] ^ (each.next() & varying[w])) & ~low_bits(c.width));
  }
}

void sort_set(Case* c) {
  std::pmr::vector<size_t> order(c->count());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto at = [c](size_t i) { return c->set.data() + c->words * i; };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::lexicographical_compare(at(a), at(a) + c->words, at(b), at(b) + c->words); });
  WordVector sorted;
  for (size_t i : order)
    if (sorted.empty() || !std::equal(at(i), at(i) + c->words, sorted.end() - c->words)) sorted.insert(sorted.end(), at(i), at(i) + c->words);
  c->set = sorted;
}

// Deals the bits to blocks at random, and makes the files.
void make_files(fuzz::Input* input, Case* c) {
  fuzz::Random random(input->word(2));
  uint8_t order[kMaxWidth];
  for (unsigned i = 0; i < c->width; ++i) order[i] = static_cast<uint8_t>(i);
  for (unsigned i = c->width - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  const size_t n = c->count();
  const uint64_t digest = words_digest(c->set.data(), n, c->words);
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
      for (unsigned j = 0; j < bits; ++j, used[h.permutation[at - 1]] = true) h.permutation[at++] = order[(from + j) % c->width];
    };
    take(i * block, c->bucket_bits);
    take(c->tables > 1 ? (i + 1) % c->tables * block : c->bucket_bits, h.tag_bits);
    for (unsigned j = 0; j < c->width; ++j)
      if (!used[j]) h.permutation[at++] = static_cast<uint8_t>(j);
    Terms terms;
    const unsigned head = c->bucket_bits + kTagBits, rest = rest_bits_for(h);
    make_terms(h.permutation, c->wide() ? head : c->width, &terms);
    WordVector keys;
    for (size_t f = 0; f < n; ++f)
      keys.push_back(gather(terms, c->set.data() + c->words * f) | (c->wide() && rest ? uint64_t{f} << (64 - head - rest) : 0));
    std::sort(keys.begin(), keys.end());
    file.make(keys.data(), n);
    RingTable& r = c->ring[i] = RingTable{&file.view, {}, {}};
    for (unsigned j = 0; j < c->bucket_bits + h.tag_bits; ++j) {
      uint64_t* const mask = j < c->bucket_bits ? r.bucket_mask : r.tag_mask;
      mask[h.permutation[j] / 64] |= uint64_t{1} << (63 - h.permutation[j] % 64);
    }
  }
}

struct Found {
  uint32_t query;
  uint64_t value;
  uint32_t distance;
  bool operator==(const Found& o) const { return query == o.query && value == o.value && distance == o.distance; }
  bool operator<(const Found& o) const { return std::pair(query, value) < std::pair(o.query, o.value); }
};

std::pmr::vector<Found> brute(const Case& c) {
  std::pmr::vector<Found> found;
  for (uint32_t q = 0; q * c.words < c.queries.size(); ++q)
    for (size_t f = 0; f < c.count(); ++f) {
      unsigned distance = 0;
      for (unsigned w = 0; w < c.words; ++w)
        distance += static_cast<unsigned>(__builtin_popcountll(c.queries[q * c.words + w] ^ c.set[f * c.words + w]));
      if (distance <= c.radius) found.push_back({q, c.wide() ? f : c.set[f], distance});
    }
  std::sort(found.begin(), found.end());
  return found;
}

std::pmr::vector<Found> taken(Sink* sink) {
  std::pmr::vector<Found> found;
  for (uint64_t i = 0; i < sink->count; ++i) {
    const Match<uint64_t>& match = matches<uint64_t>(*sink)[i];
    found.push_back({match.query, match.fingerprint, match.distance});
  }
  release(sink);
  std::sort(found.begin(), found.end());
  return found;
}

// Asks everything. With sure, it must be right; otherwise right or an error, and of forged files anything.
void ask(const Case& c, bool sure, bool forged) {
  const ColumnQueries queries{c.queries.data(), c.queries.size() / c.words};
  const auto right = brute(c);
  Fault fault;
  Sink sink;
  const auto settle = [&](Status status) {
    REQUIRE(status == Status::ok || !sure);
    const auto found = taken(&sink);
    if (status == Status::ok && !forged) REQUIRE(found == right);
  };
  const ColumnKernels& k = column_kernels();
  for (const bool balance : {false, true}) {
    ColumnCounters counters;
    const ColumnProbe probe = c.words == 1 ? k.probe_copies : c.words == 2 ? k.probe_pairs : k.probe_fours;
    settle(probe(c.whole(), queries, {c.radius, c.thresholds, balance, nullptr}, &sink, &counters, &fault));
    REQUIRE(fault.table <= c.tables);
  }
  const ColumnView& first = c.wide() ? c.rows.view : c.files[0].view;
  settle(scan_entries(first, {0, first.count}, queries, c.radius, nullptr, {&sink, nullptr}, &fault));
  WordVector places(c.count());
  const Status status = locate_entries(first, {c.set.data(), c.count()}, places.data(), nullptr, &fault);
  REQUIRE(status == Status::ok || !sure);
  for (size_t i = 0; status == Status::ok && !forged && i < places.size(); ++i) REQUIRE(places[i] < c.count() && (!c.wide() || places[i] == i));
}

// Overwrites bytes; whether anything changed. Of a forged file the checksums are put right.
bool damage(fuzz::Input* input, File* file, bool forged) {
  bool changed = false;
  const ColumnHeader before = file->header;
  for (unsigned n = 1 + input->byte() % 4; n; --n) {
    uint64_t from = kHeaderBytes, to = file->bytes;
    const unsigned where = input->byte() % 8;
    if (where == 0) from = 8, to = 392;
    if (where == 1) to = before.tags_offset;
    if (where == 2) from = before.tags_offset, to = before.rest_offset;
    if (where == 3) from = before.rest_offset, to = before.checksums_offset;
    const uint64_t at = from + input->word(3) % (to - from);
    const uint8_t was = file->data[at];
    file->data[at] = input->byte();
    changed |= was != file->data[at];
  }
  if (forged) {
    store64(file->data.get() + kHeaderBytes - 8, xxh64(file->data.get(), kHeaderBytes - 8, 0));
    file->header.checksum = load64(file->data.get() + kHeaderBytes - 8);
    file->sign();
  }
  return changed;
}

void draw(fuzz::Input* input, const fuzz::Chance& chance, Case* c) {
  constexpr unsigned widths[] = {32, 64, 128, 256};
  const unsigned shape = input->byte();
  c->width = widths[shape % 4];
  c->words = c->width <= 64 ? 1 : c->width / 64;
  c->tables = 1 + (shape >> 2) % (c->width == 32 ? 4 : 8);
  c->bucket_bits = kMinBucketBits + (shape >> 5) % 4;
  if (c->bucket_bits > c->width / c->tables) c->bucket_bits = kMinBucketBits;
  const size_t most = chance.scale() == fuzz::Scale::large ? 3000 : chance.scale() == fuzz::Scale::medium ? 200 : 24;
  draw_words(input, *c, input->word(2) % (most + 1), &c->set);
  sort_set(c);
  draw_words(input, *c, input->byte() % 5, &c->queries);
  for (unsigned near = input->byte() % 4; near && c->count(); --near) {
    const size_t f = input->word(2) % c->count();
    for (unsigned w = 0; w < c->words; ++w)
      c->queries.push_back(c->set[f * c->words + w] ^ (uint64_t{1} << (63 - input->byte() % (c->width < 64 ? 32 : 64))));
  }
  c->radius = input->byte() % (2 * c->tables + 2);
  for (unsigned i = 0; i < c->tables; ++i) c->thresholds[i] = -1;
  for (unsigned left = c->radius + 1; left; --left) ++c->thresholds[input->left() ? input->byte() % c->tables : left % c->tables];
  for (unsigned i = 0; i < c->tables; ++i)
    if (c->thresholds[i] > 3 && chance.scale() != fuzz::Scale::small) c->radius = 0;  // fewer look-ups of a large case
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<const Kernels*>* const all = new std::vector<const Kernels*>(fuzz::all_kernels(64));
  const fuzz::Arena arena;
  const fuzz::Chance chance(data, size);
  fuzz::Input input(data, size);
  Case c;
  draw(&input, chance, &c);
  make_files(&input, &c);
  const unsigned harm = input.byte() % 4;  // 0 and 1: none
  File* const harmed = c.wide() && input.byte() % 2 ? &c.rows : c.files + input.byte() % c.tables;
  if (harm >= 2) damage(&input, harmed, harm == 3);
  for (const Kernels* set : chance.sets(*all)) {
    REQUIRE(select_kernels(set->name));
    bool open = !c.wide() || c.rows.open();
    for (unsigned i = 0; i < c.tables; ++i) open &= c.files[i].open();
    REQUIRE(open || harm >= 2);
    if (!open) return 0;
    for (unsigned i = 0; i < c.tables; ++i)  // a forged header may say anything that a ring cannot have; its files are not opened together
      if (c.files[i].view.words != c.words || c.files[i].header.bucket_bits != c.bucket_bits) return 0;
    if (c.wide() && c.rows.view.words != c.words) return 0;
    ask(c, harm < 2, harm == 3);
  }
  return 0;
}
