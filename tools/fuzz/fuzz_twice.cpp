// Bytes that change after they were checked: those of tables, column tables, sealed files and id
// records, each time the kernel has checked or read some of them. Whatever is then found, the
// kernel ends, and nothing is read or written outside what it was given.
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "blocks.hpp"
#include "column_files.hpp"
#include "format/idpack.hpp"
#include "format/sealed_file.hpp"

namespace {

// Who is told when mapped bytes may change. Built as for users, the kernel tells nobody, and
// nothing changes.
void when_bytes_change([[maybe_unused]] void (*change)()) {
#ifdef FPSTORE_SMALL
  change_mapped_bytes = change;
#endif
}

// Changes bytes as the input says, and at random when the input has ended.
class Changing {
 public:
  // The first so many chances are left out.
  Changing(fuzz::Input* input, unsigned most)
      : input_(input), random_(input->word(2)), wait_(next() % most) {}
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;
  ~Changing() { when_bytes_change(nullptr); }

  void add(void* bytes, size_t count) {
    if (count) parts_.push_back({static_cast<uint8_t*>(bytes), count});
  }
  void start() {
    now_ = this;
    when_bytes_change([] { now_->step(); });
  }

 private:
  struct Part {
    uint8_t* bytes;
    size_t count;
  };
  unsigned next() { return input_->left() ? input_->byte() : static_cast<uint8_t>(random_.next()); }

  void step() {
    if (wait_--) return;
    wait_ = next() % 8;
    if (wait_ == 7) wait_ = next();
    for (unsigned n = 1 + next() % 4; n; --n) change(next());
  }

  void change(unsigned how) {
    const Part& part = parts_[next() % parts_.size()];
    // Near the front of a block or a page, where their lengths are, or anywhere.
    size_t at = (next() << 8 | next()) % part.count;
    if (how & 16) at = at / 64 % (1 + part.count / 128) * 128 + at % 16;
    const uint8_t same = how & 64 ? 255 : 0;
    for (unsigned n = how & 32 ? 8 : 1; n && at < part.count; --n, ++at)
      part.bytes[at] = how & 128 ? same : static_cast<uint8_t>(next());
  }

  inline static Changing* now_;
  fuzz::Input* input_;
  fuzz::Random random_;
  unsigned wait_;
  std::vector<Part> parts_;
};

// Id records ------------------------------------------------------------------------------------

std::vector<uint8_t> packed(fuzz::Input* input, uint64_t seed) {
  const unsigned most = 1 + input->byte() % 16, shift = input->byte() % 64;
  std::vector<uint64_t> ids, lims{0};
  for (unsigned n = 1 + input->byte() % 64; n; --n) {
    uint64_t id = input->word(4) << shift >> input->byte() % 8;
    for (unsigned k = 1 + input->byte() % most; k && (ids.size() == lims.back() || id > ids.back());
         --k, id += 1 + input->byte())
      ids.push_back(id);
    lims.push_back(ids.size());
  }
  std::vector<uint64_t> counts(lims.size() - 1);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = lims[i + 1] - lims[i];
  std::vector<uint8_t> record;
  pack_record(ids.data(), counts.data(), counts.size(), seed, &record);
  return record;
}

// What is read of an accepted record stays in it, even where its bytes are no longer those that
// were accepted.
void read_all(const IdRecord& record) {
  for (uint32_t rank = 0; rank < record.count; ++rank) {
    uint64_t first;
    const uint64_t count = ids_of_rank(record, rank, &first);
    REQUIRE(first <= record.total && count <= record.total - first);
    for (uint64_t i = 0; i < count; ++i) id_at(record, first + i);
  }
  const std::unique_ptr<uint64_t[]> counts(new uint64_t[record.count]),
      ids(new uint64_t[record.total]);
  unpack_counts(record, counts.get());
  unpack_ids(record, ids.get());
}

void change_record(fuzz::Input input) {
  const uint64_t seed = input.byte();
  const std::vector<uint8_t> record = packed(&input, seed);
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[record.size()]);
  std::copy(record.begin(), record.end(), bytes.get());
  Changing changing(&input, 1);
  changing.add(bytes.get(), record.size());
  changing.start();
  IdRecord opened;
  Fault fault;
  if (open_record(bytes.get(), record.size(), seed, &opened, &fault) == Status::ok)
    read_all(opened);
}

// Tables ----------------------------------------------------------------------------------------

template <class W>
struct Tables : Blocks<W> {
  using Base = Blocks<W>;
  using typename Base::Copy;
  using typename Base::Row;
  using typename Base::Rows;
  using typename Base::Table;

  static void check(const Sink& sink, size_t queries, unsigned radius) {
    for (uint64_t i = 0; i < sink.count; ++i) {
      const Match<Row>& match = fpstore::matches<Row>(sink)[i];
      REQUIRE(match.query < queries && match.distance <= radius);
    }
  }

  static void ask(const Kernels& set, const TableView& view, const Rows& queries,
                  unsigned prefix_bits, unsigned radius, unsigned what) {
    const Queries asked{fuzz::words(queries), queries.size()};
    Fault fault;
    Sink sink;
    switch (what % 8) {
      case 0: {
        std::vector<uint64_t> blocks(queries.size());
        std::vector<uint32_t> ranks(queries.size());
        if (set.locate(view, asked, blocks.data(), ranks.data(), nullptr, &fault) != Status::ok)
          break;
        for (const uint64_t block : blocks)
          REQUIRE(block < view.block_count || block == UINT64_MAX);
        break;
      }
      case 1: {
        // At the end of the room, which is full now and then.
        const uint64_t room = kMinRoom >> (what >> 3) % 12;
        std::vector<uint32_t> counts(view.block_count);
        Decoded to{reinterpret_cast<uint64_t*>(Base::world().out.get() + kRoom - room), room,
                   counts.data()};
        set.decode_blocks(view, {0, view.block_count}, &to, &fault);
        REQUIRE(to.written <= room && to.blocks <= view.block_count);
        break;
      }
      case 2: {
        set.scan(view, {0, view.block_count}, asked, {radius}, &sink, &fault);
        break;
      }
      case 3: {
        Nearest nearest;
        REQUIRE(start_nearest(&nearest, W::kWords, queries.size(), 1 + what / 8, radius));
        set.scan(view, {0, view.block_count}, asked, {radius, nullptr, &nearest}, &sink, &fault);
        REQUIRE(hand_over(&nearest, &sink));
        release(&nearest);
        break;
      }
      default: {
        std::vector<uint64_t> variants{0};
        for (unsigned bit = 64 - prefix_bits; (what & 8) && prefix_bits <= 8 && bit < 64; ++bit)
          variants.push_back(uint64_t{1} << bit);
        TableProbe probe{&view, prefix_bits,     variants.size() > 1,
                         {},    variants.data(), variants.size()};
        *rows<Row>(probe.condition) = apply(view.inverse, fuzz::top_bits<W>(prefix_bits));
        ProbeOptions options{radius};
        options.order = std::array{Order::best, Order::asked, Order::near, Order::sorted}[what % 4];
        FoundPlaces places;
        places.table = &view;
        places.on_block = [](const void*, uint64_t) {};
        if (queries.size() == 1) options.places = &places;
        ProbeCounters counters;
        set.probe({&probe, 0, 1}, asked, options, &sink, &counters, &fault);
        for (unsigned i = 0; i < places.count; ++i) REQUIRE(places.of[i].block < view.block_count);
      }
    }
    check(sink, queries.size(), radius);
    release(&sink);
  }

  static void run(fuzz::Input& input, const fuzz::Chance& chance) {
    const unsigned shape = input.byte();
    Table t;
    t.code = &Base::world().codes[input.byte() % kCodes];
    t.permutation = input.byte() % kPermutations;
    t.block_bytes = kMinBlockBytes
                    << (chance.scale() == fuzz::Scale::small ? shape % 2 : shape % 6);
    t.seed = 1;
    Base::encode_table(&t, Base::make_keys(t.code->lengths, 255, &input),
                       {Base::world().sets.front()});
    for (uint64_t b = 0; b < t.count(); ++b) t.seal(b);
    t.directory_bits = shape / 8 % 6;
    t.directory = Base::right_directory(t);
    const Permutation& inverse = Base::world().inverse[t.permutation];
    Rows queries;
    for (unsigned n = 1 + input.byte() % 6; n; --n)
      queries.push_back(
          apply(inverse, n % 2 ? t.keys[input.byte() % t.count()] : fuzz::input_row<W>(&input)) ^
          fuzz::one_bit<W>(input.byte() % W::kBits));
    const unsigned prefix_bits = input.byte() % (W::kLast + 2), radius = input.byte() % 24,
                   claims = input.byte() % 20, what = input.byte();
    for (const Kernels* set : chance.sets(Base::world().sets, 4)) {
      static Copy copy;
      copy.load(t, 0x5A, uint64_t{1} << claims);
      fuzz::Input left = input;
      Changing changing(&left, 32);
      changing.add(copy.blocks.get(), t.blocks.size());
      changing.add(copy.keys.get(), t.count() * 8);
      changing.add(copy.key_rests.get(), t.count() * W::kRestBytes);
      changing.add(copy.directory.get(), t.directory.size() * 8);
      changing.start();
      ask(*set, copy.view, queries, prefix_bits, radius, what);
    }
  }
};

// Column tables ---------------------------------------------------------------------------------

void change_columns(fuzz::Input input, const fuzz::Chance& chance) {
  static const std::vector<const Kernels*>* const all =
      new std::vector<const Kernels*>(fuzz::all_kernels(64));
  Case c;
  draw(&input, chance, &c);
  make_files(&input, &c);
  const unsigned what = input.byte();
  REQUIRE(!c.wide() || c.rows.open());
  for (unsigned i = 0; i < c.tables; ++i) REQUIRE(c.files[i].open());
  Changing changing(&input, 32);
  const auto add = [&](File& file) {
    changing.add(file.data.get() + kHeaderBytes, file.bytes - kHeaderBytes);
  };
  if (c.wide()) add(c.rows);
  for (unsigned i = 0; i < c.tables; ++i) add(c.files[i]);
  changing.start();
  for (const Kernels* set : chance.sets(*all)) {
    REQUIRE(select_kernels(set->name));
    const Queries queries{c.queries.data(), c.queries.size() / c.words};
    const ColumnView& first = c.wide() ? c.rows.view : c.files[0].view;
    Fault fault;
    Sink sink;
    if (what % 4 == 0) {
      scan_entries(first, {0, first.count}, queries, {c.radius}, &sink, &fault);
    } else if (what % 4 == 1) {
      std::vector<uint64_t> places(c.count());
      if (locate_entries(first, {c.set.data(), c.count()}, places.data(), nullptr, &fault) ==
          Status::ok)
        for (const uint64_t place : places) REQUIRE(place < c.count() || place == UINT64_MAX);
    } else if (what % 8 == 2) {
      const uint64_t from = first.count ? what / 8 % first.count : 0;
      const std::unique_ptr<uint64_t[]> out(
          new uint64_t[(first.count - from) * (first.rows ? first.words : 1)]);
      read_entries(first, {from, first.count}, out.get(), &fault);
    } else {
      ColumnCounters counters;
      const ColumnProbe probe = column_kernels().probe[c.words / 2];
      probe(c.whole(), queries, {c.radius, c.thresholds, (what & 4) != 0, nullptr}, &sink,
            &counters, &fault);
      for (uint64_t i = 0; i < sink.count; ++i) {
        const Match<uint64_t>& match = matches<uint64_t>(sink)[i];
        REQUIRE(match.query < queries.count && match.distance <= c.radius &&
                (!c.wide() || match.fingerprint < c.count()));
      }
    }
    release(&sink);
  }
}

// Sealed files ----------------------------------------------------------------------------------

constexpr uint64_t kPage = 4096, kChunk = 4096, kPad = 1 << 18, kLongest = 1 << 16;

// A file of pages in memory, under their checksums: leaves with values, of which some lie on pages
// of their own, below a branch.
class Sealed {
 public:
  Sealed(fuzz::Input* input, uint64_t seed) {
    words_ = std::array{1u, 2u, 4u}[input->byte() % 3];
    pages_.resize(3 * kPage);
    const unsigned leaves = 1 + input->byte() % 3;
    uint8_t* const root = page(2);
    start(root, 2, 1);
    for (unsigned i = 0; i < leaves; ++i) {
      const uint64_t number = pages_.size() / kPage;
      pages_.resize(pages_.size() + kPage);
      start(page(number), number, 2);
      const size_t first = keys_.size();
      for (unsigned n = 1 + input->byte() % 6; n; --n)
        put(number, packed(input, seed), input->byte() % 4 == 0);
      uint8_t* const way = node(2, i, 8 + 8 * words_);
      store16(way, static_cast<uint16_t>(number));  // of its six bytes
      set_key(way, keys_[first]);
    }
    for (unsigned number = 0; number < 2; ++number) set_metadata(page(number), number);
    const uint64_t used = pages_.size(), groups = (used / kChunk + 511) / 512,
                   level_one = used + kPad;
    std::vector<uint64_t> sums, level_two;
    for (uint64_t at = 0; at < used; at += kChunk)
      sums.push_back(xxh64(pages_.data() + at, kChunk, 0));
    for (uint64_t g = 0; g < groups; ++g)
      level_two.push_back(xxh64(reinterpret_cast<uint8_t*>(sums.data() + 512 * g),
                                8 * std::min<size_t>(sums.size() - 512 * g, 512), 0));
    level_two.push_back(
        xxh64(reinterpret_cast<uint8_t*>(level_two.data()), 8 * groups, used));  // the digest
    bytes_ = level_one + 8 * (sums.size() + groups + 1);
    descriptor_ = memfd_create("sealed", 0);
    REQUIRE(descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(bytes_)) == 0);
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    REQUIRE(mapped != MAP_FAILED);
    data = static_cast<uint8_t*>(mapped);
    memcpy(data, pages_.data(), used);
    memcpy(data + level_one, sums.data(), 8 * sums.size());
    memcpy(data + level_one + 8 * sums.size(), level_two.data(), 8 * (groups + 1));
  }
  Sealed(const Sealed&) = delete;
  Sealed& operator=(const Sealed&) = delete;
  ~Sealed() {
    munmap(data, bytes_);
    close(descriptor_);
  }

  int descriptor() const { return dup(descriptor_); }
  unsigned words() const { return words_; }
  uint64_t used() const { return pages_.size(); }
  const std::vector<uint64_t>& keys() const { return keys_; }

  uint8_t* data;

 private:
  uint8_t* page(uint64_t number) { return pages_.data() + number * kPage; }
  void start(uint8_t* p, uint64_t number, unsigned flags) {
    store64(p, number);
    store16(p + 10, static_cast<uint16_t>(flags));
    store16(p + 12, 16);
    store16(p + 14, kPage);
  }
  void set_metadata(uint8_t* p, unsigned number) {
    store64(p, number);
    store16(p + 10, 8);
    store64(p + 16, 0x1BEEFC0DE);
    store32(p + 40, kPage);
    store16(p + 44, 0x4008);
    store16(p + 94, 2);  // levels
    store64(p + 120, keys_.size());
    store64(p + 128, 2);
    store64(p + 136, pages_.size() / kPage - 1);
    store64(p + 144, number);
  }
  // A node of so many bytes, number i of its page, from the end of the page on.
  uint8_t* node(uint64_t number, unsigned i, size_t bytes) {
    uint8_t* const p = page(number);
    const uint16_t at = static_cast<uint16_t>(load16(p + 14) - (bytes + 1) / 2 * 2);
    store16(p + 14, at);
    store16(p + 12, static_cast<uint16_t>(load16(p + 12) + 2));
    store16(p + 16 + 2 * i, at);
    store16(p + at + 6, static_cast<uint16_t>(8 * words_));
    return p + at;
  }
  void set_key(uint8_t* node, uint64_t key) {
    for (unsigned i = 0; i < words_; ++i) store64be(node + 8 + 8 * i, i + 1 == words_ ? key : 0);
  }
  void put(uint64_t number, const std::vector<uint8_t>& value, bool apart) {
    apart |= value.size() > 600;  // six of those that are not fit a page
    const uint16_t lower = load16(page(number) + 12);
    const size_t head = 8 + 8 * words_, bytes = head + (apart ? 8 : value.size());
    const uint64_t key = keys_.empty() ? 1 : keys_.back() + 3, elsewhere = pages_.size() / kPage;
    uint8_t* const n = node(number, static_cast<unsigned>(lower - 16) / 2, bytes);
    keys_.push_back(key);
    set_key(n, key);
    store32(n, static_cast<uint32_t>(value.size()));
    store16(n + 4, apart);
    if (!apart) {
      std::copy(value.begin(), value.end(), n + head);
      return;
    }
    store64(n + head, elsewhere);
    pages_.resize(pages_.size() + (16 + value.size() + kPage - 1) / kPage * kPage);
    start(page(elsewhere), elsewhere, 4);
    std::copy(value.begin(), value.end(), page(elsewhere) + 16);
  }

  unsigned words_;
  std::vector<uint8_t> pages_;
  std::vector<uint64_t> keys_;
  uint64_t bytes_;
  int descriptor_;
};

void change_sealed(fuzz::Input input) {
  const uint64_t seed = input.byte();
  const Sealed made(&input, seed);
  if (made.keys().empty()) return;
  const unsigned how = input.byte(), words = made.words();
  SealedFile file(made.descriptor(), "made", words, kLongest);
  if (how & 1) file.check_all(nullptr);
  std::vector<uint8_t> value;
  const auto row_of = [&](size_t i, uint64_t* row) {
    std::fill(row, row + words, 0);
    row[words - 1] = made.keys()[i];
  };
  const auto read = [&](size_t i, bool noted) {
    uint64_t row[kMaxWords];
    row_of(i, row);
    file.fetch(i);
    const SealedFile::Value found = file.find(row, noted ? i : SealedFile::kNoNumber);
    if (found.data) value.assign(found.data, found.data + found.size);
    return found.data != nullptr;
  };
  IdRecord record;
  Fault fault;
  for (size_t i = 0; how & 2 && i < made.keys().size(); ++i) {
    REQUIRE(read(i, i % 2));
    REQUIRE(open_record(value.data(), value.size(), seed, &record, &fault) == Status::ok);
  }
  Changing changing(&input, 32);
  changing.add(made.data, made.used());
  changing.start();
  for (unsigned n = 4; n; --n) {
    try {
      if (how & 8) {  // all of them, one way or the other
        std::vector<uint64_t> rows, numbers, keys;
        for (size_t i = 0; i < made.keys().size(); ++i) {
          rows.resize(rows.size() + words);
          row_of(i, rows.data() + i * words);
          numbers.push_back(i);
        }
        std::vector<SealedFile::Value> values;
        if (how & 16)
          file.find_many(rows.data(), numbers.data(), numbers.size(), UINT64_MAX, nullptr, &values);
        else
          file.range(rows.data(), rows.data() + rows.size() - words, UINT64_MAX, nullptr, &values,
                     &keys);
        for (const SealedFile::Value& one : values) value.assign(one.data, one.data + one.size);
        continue;
      }
      if (!read(input.byte() % made.keys().size(), how & 4)) continue;
    } catch (const SealedError&) {
      continue;
    }
    REQUIRE(value.size() <= kLongest);
    if (open_record(value.data(), value.size(), seed, &record, &fault) != Status::ok) continue;
    // What was copied is what was checked.
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < record.count; ++rank) sum += count_at(record, rank);
    REQUIRE(sum == record.total);
    read_all(record);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  const fuzz::Chance chance(data, size);
  fuzz::Input input(data, size);
  switch (input.byte() % 8) {
    case 0:
      change_record(input);
      break;
    case 1:
      change_sealed(input);
      break;
    case 2:
    case 3:
      change_columns(input, chance);
      break;
    default:
      fuzz::with_width(input.byte(),
                       [&](auto width) { Tables<decltype(width)>::run(input, chance); });
  }
  return 0;
}
