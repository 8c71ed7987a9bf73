// Whole probes: several tables of one set, any prefix and flips, batches of many sizes taken one by
// one, in groups, nearly in order and in sorted sweeps. Every instruction set must give what a
// brute-force search gives, also where bytes of filters are damaged; of tables with damaged bytes,
// that or an error.
#include <tuple>

#include "blocks.hpp"
#include "filter_files.hpp"

namespace {

using Words = std::vector<uint64_t>;

constexpr unsigned kTables = 4;

// What a case of one scale costs at most.
struct Bounds {
  size_t most;        // fingerprints, or queries
  uint64_t pairs;     // of a query and a fingerprint
  uint64_t look_ups;  // in a table
};
constexpr Bounds kBounds[] = {{66, 300, 150}, {300, 1500, 500}, {2049, 6000, 2100}};

// The sizes at which groups, blocks of work and sorts change their ways, and what lies around them.
size_t choose_size(fuzz::Input* input, size_t most) {
  static const uint16_t sizes[] = {0,   1,   2,   3,   23,   24,   25,   26,   63,   64,  65,
                                   66,  127, 128, 129, 130,  191,  192,  193,  255,  256, 257,
                                   300, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049};
  const unsigned choice = input->byte();
  const size_t n = choice < 160 ? choice % 24 : sizes[choice < 240 ? choice % 20 : choice % 32];
  return std::min(n, most);
}

template <class W>
struct Sweeping : Blocks<W> {
  using Base = Blocks<W>;
  using Base::world;
  using typename Base::Copy;
  using typename Base::Row;
  using typename Base::Rows;
  using typename Base::Table;
  using typename Base::World;
  using Matches =
      std::pmr::vector<std::tuple<uint32_t, Row, uint32_t>>;  // query, fingerprint, distance

  static Row flipped(const Row& x, fuzz::Random* random) {
    return x ^ fuzz::one_bit<W>(random->below(W::kBits));
  }

  static Rows make_fingerprints(size_t n, fuzz::Input* input) {
    const unsigned shape = input->byte();
    const unsigned wide = input->byte();
    const unsigned shared = wide % (W::kBits + 1), kept = input->byte() * 7 % (W::kBits + 1);
    const Row base =
        shape & 64 ? fuzz::plus<W>(Row{}, input->byte() % 3 - 1) : fuzz::input_row<W>(input);
    const Row same = fuzz::top_bits<W>(shared), prefix = fuzz::top_bits<W>(shape & 128 ? 64 : 16);
    fuzz::Random random(leading_word(base) + shape);
    Rows keys;
    for (size_t i = 0; i < n; ++i) {
      Row x =
          shape & 1 ? fuzz::plus<W>(base, static_cast<int64_t>(i)) : fuzz::random_row<W>(&random);
      if ((shape & 2) && i) {
        x = keys[random.below(static_cast<unsigned>(i))];
        for (unsigned k = 1 + random.below(3); k; --k) x = flipped(x, &random);
      }
      if (shape & 4) x = fuzz::joined<W>(base & same, fuzz::without<W>(x, same));
      if (shape & 8) x = x & fuzz::top_bits<W>(kept);
      if (shape & 16) {
        x = fuzz::without<W>(x, prefix);
        fuzz::word_at(x, 0) |= uint64_t{random.below(3)} << 48;
      }
      keys.push_back(x);
    }
    if (shape & 32 && n) keys.back() = fuzz::top_bits<W>(W::kBits), keys.front() = Row{};
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  static Rows make_queries(size_t n, const Rows& keys, fuzz::Input* input) {
    const unsigned shape = input->byte();
    fuzz::Random random(input->word(4));
    Rows queries;
    while (queries.size() < n) {
      Row x = keys.empty() || random.below(8) == 0
                  ? fuzz::random_row<W>(&random)
                  : keys[random.below(static_cast<unsigned>(keys.size()))];
      if (shape & 1 && random.below(2)) x = input->left() ? fuzz::input_row<W>(input) : x;
      for (unsigned k = shape & 2 ? random.below(6) : 0; k; --k) x = flipped(x, &random);
      if (shape & 4) x = fuzz::plus<W>(x, static_cast<int64_t>(random.below(3)) - 1);
      queries.push_back(shape & 8 && !queries.empty() && random.below(2) ? queries.front() : x);
    }
    if (shape & 16) std::sort(queries.begin(), queries.end());
    return queries;
  }

  // Every mask of at most so many of the leading bits, ascending.
  static Words make_variants(unsigned prefix_bits, unsigned flips) {
    Words masks{0};
    for (unsigned round = 0; round < flips; ++round)
      for (size_t i = 0, n = masks.size(); i < n; ++i)
        for (unsigned bit = 64 - prefix_bits; bit < 64; ++bit)
          masks.push_back(masks[i] | uint64_t{1} << bit);
    std::sort(masks.begin(), masks.end());
    masks.erase(std::unique(masks.begin(), masks.end()), masks.end());
    return masks;
  }

  struct Part {
    Table table;
    unsigned prefix_bits, flips;
    bool has_filter;
    FilterFile filter;
    Row condition;
    Words variants;
  };

  // A filter of a table with these entries; its pages are damaged where harm is not 0.
  static void make_filter(Part* part, const Rows& keys, unsigned shape, unsigned harm) {
    FilterFile& f = part->filter;
    f.header = FilterHeader{};
    f.header.width = W::kBits;
    for (unsigned i = 0; i < W::kBits; ++i) f.header.permutation[i] = static_cast<uint8_t>(i);
    draw_filter_shape(shape, part->prefix_bits, &f.header);
    f.make(fuzz::words(keys), keys.size(), W::kWords, keys.size() + 1);
    fuzz::Random random(harm);
    if (harm)
      f.data[kHeaderBytes + random.next() % (f.bytes - kHeaderBytes)] ^=
          static_cast<uint8_t>(1 + random.below(255));
  }

  static void make_part(Part* part, const Rows& fingerprints, size_t queries, const Bounds& bounds,
                        const Kernels& encoder, Codec codec, fuzz::Input* input) {
    const World& w = world();
    Table& t = part->table;
    t.code = Base::code_of_all(input->byte(), codec);
    const unsigned shape = input->byte();
    t.permutation = shape % kPermutations;
    t.block_bytes = kMinBlockBytes << (shape >> 4) / 6;
    t.seed = input->byte();
    t.directory_bits = input->byte() % 6;
    Rows keys(fingerprints);
    for (Row& key : keys) key = apply(w.forward[t.permutation], key);
    std::sort(keys.begin(), keys.end());
    t.blocks.clear();
    t.keys.clear();
    if (!keys.empty()) Base::encode_table(&t, keys, {&encoder});
    t.directory = Base::right_directory(t);

    part->prefix_bits = input->byte() % (W::kLast + 2);
    const unsigned most = part->prefix_bits <= 8 ? 3 : part->prefix_bits <= 20 ? 2 : 1;
    part->flips = std::min(input->byte() % (most + 1), part->prefix_bits);
    do part->variants = make_variants(part->prefix_bits, part->flips);
    while (part->variants.size() * queries > bounds.look_ups && part->flips-- > 0);
    const unsigned filtered = input->byte();
    part->has_filter = part->prefix_bits && filtered & 1;
    if (part->has_filter) make_filter(part, keys, input->byte(), filtered / 2 % 4 ? 0 : filtered);
    part->condition = apply(w.inverse[t.permutation], fuzz::top_bits<W>(part->prefix_bits));
  }

  // Changes bytes without mending the checksums.
  static void damage_part(Part* part, fuzz::Input* input) {
    Table& t = part->table;
    if (!t.count()) return;
    for (unsigned n = 1 + input->byte() % 2; n; --n) {
      const unsigned what = input->byte() % 3;
      const uint8_t change = static_cast<uint8_t>(input->byte() | 1);
      const uint64_t place = input->word(3);
      if (what == 0) t.blocks[place % t.blocks.size()] ^= change;
      if (what == 1)
        fuzz::word_at(t.keys[place % t.count()], change % W::kWords) ^=
            input->byte() & 1 ? input->word() : uint64_t{change} << place % 57;
      if (what == 2)
        t.directory[place % t.directory.size()] = input->byte() & 1 ? input->word() : change % 12;
    }
  }

  struct Batch {
    std::vector<Part> parts;
    Rows fingerprints, queries;
    unsigned radius;
    bool sound;
    Matches probed, scanned;
  };

  static void find_truth(Batch* b) {
    for (uint32_t q = 0; q < b->queries.size(); ++q)
      for (const Row& fingerprint : b->fingerprints) {
        const Row difference = fingerprint ^ b->queries[q];
        const unsigned distance = ones(difference);
        if (distance > b->radius) continue;
        b->scanned.emplace_back(q, fingerprint, distance);
        for (const Part& part : b->parts)
          if (ones(difference & part.condition) <= part.flips) {
            b->probed.emplace_back(q, fingerprint, distance);
            break;
          }
      }
  }

  // A sound table must give the right answer, a damaged one that or an error.
  static void judge(const Batch& b, Status status, const Fault& fault, Sink* sink,
                    const Matches& right) {
    if (status != Status::ok) {
      REQUIRE(!b.sound && fault.status == status);
    } else {
      REQUIRE(sink->count == right.size());
      Matches found;
      for (uint64_t i = 0; i < sink->count; ++i) {
        const Match<Row>& match = matches<Row>(*sink)[i];
        found.emplace_back(match.query, match.fingerprint, match.distance);
      }
      std::sort(found.begin(), found.end());
      REQUIRE(found == right);
    }
    release(sink);
  }

  static void check_probe(const Kernels& set, const Batch& b, const std::vector<TableProbe>& probes,
                          Order order, uint64_t limit) {
    Sink sink;
    sink.limit = limit;
    ProbeCounters counters;
    ProbeOptions options{b.radius};
    options.order = order;
    Fault fault;
    fault.table = 99;
    const Status status =
        set.probe({probes.data(), 0, static_cast<unsigned>(probes.size())},
                  {fuzz::words(b.queries), b.queries.size()}, options, &sink, &counters, &fault);
    REQUIRE(fault.table < probes.size());
    if (b.sound && b.probed.size() > limit) {
      REQUIRE(status == Status::out_of_memory && fault.status == status);
      release(&sink);
      return;
    }
    judge(b, status, fault, &sink, b.probed);
  }

  static void check_locate(const Kernels& set, const Batch& b, const Table& t,
                           const TableView& view) {
    Rows wanted(b.fingerprints);
    wanted.insert(wanted.end(), b.queries.begin(), b.queries.end());
    std::vector<uint64_t> blocks(wanted.size());
    std::vector<uint32_t> ranks(wanted.size());
    Fault fault;
    const Status status = set.locate(view, {fuzz::words(wanted), wanted.size()}, blocks.data(),
                                     ranks.data(), nullptr, &fault);
    if (status != Status::ok) {
      REQUIRE(!b.sound && fault.status == status);
      return;
    }
    // By place in the table they ascend, and each is where as many lie before it as are smaller.
    std::vector<uint64_t> starts{0};
    for (uint64_t i = 0; i < t.count(); ++i)
      starts.push_back(starts.back() + load16(view.blocks + i * t.block_bytes + 4));
    Rows keys(b.fingerprints);
    for (Row& key : keys) key = apply(view.forward, key);
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Row key = apply(view.forward, wanted[i]);
      const size_t place =
          static_cast<size_t>(std::lower_bound(keys.begin(), keys.end(), key) - keys.begin());
      const bool here = place < keys.size() && keys[place] == key;
      REQUIRE(here == (blocks[i] != UINT64_MAX));
      if (here && b.sound) REQUIRE(blocks[i] < t.count() && starts[blocks[i]] + ranks[i] == place);
    }
  }

  static void check_set(const Kernels& set, Batch& b, uint8_t behind, uint64_t claims, Order order,
                        uint64_t limit, bool all) {
    static Copy copies[kTables];
    std::vector<TableProbe> probes;
    for (size_t i = 0; i < b.parts.size(); ++i) {
      Part& part = b.parts[i];
      copies[i].load(part.table, behind, claims);
      probes.push_back(TableProbe{&copies[i].view,
                                  part.prefix_bits,
                                  part.flips,
                                  {},
                                  part.variants.data(),
                                  part.variants.size()});
      *rows<Row>(probes.back().condition) = part.condition;
      if (!part.has_filter) continue;
      REQUIRE(part.filter.open());
      probes.back().filter = &part.filter.view;
      probes.back().passing = part.filter.view.passing;
    }
    check_probe(set, b, probes, Order::asked, limit);
    check_probe(set, b, probes, order, limit);
    if (!all) return;
    const TableView& first = copies[0].view;
    check_locate(set, b, b.parts[0].table, first);
    Sink sink;
    Fault fault;
    const uint64_t middle = first.block_count / 2;
    const Queries queries{fuzz::words(b.queries), b.queries.size()};
    Status status = set.scan(first, {0, middle}, queries, {b.radius}, &sink, &fault);
    if (status == Status::ok)
      status = set.scan(first, {middle, first.block_count}, queries, {b.radius}, &sink, &fault);
    judge(b, status, fault, &sink, b.scanned);
  }

  static void run(fuzz::Input& input, const uint8_t* data, size_t size) {
    Batch b;
    const unsigned shape = input.byte();
    b.sound = shape < 192;
    const unsigned radius = input.byte();
    b.radius = radius < 192 ? radius % 8 : radius * 29 % (W::kBits + 1);
    const fuzz::Chance chance(data, size);
    const Bounds& bounds = kBounds[static_cast<unsigned>(chance.scale())];
    const size_t query_count = choose_size(&input, bounds.most);
    const size_t most =
        std::min<size_t>(bounds.most, bounds.pairs / (query_count ? query_count : 8));
    b.fingerprints = make_fingerprints(choose_size(&input, most), &input);
    b.parts.resize(1 + shape % kTables);
    const unsigned sweep = input.byte();
    const Order order = sweep < 120 ? Order::sorted : sweep < 240 ? Order::near : Order::best;
    const unsigned claims = input.byte();
    const unsigned bound = input.byte();
    // Target block encodes in every set.
    const std::vector<const Kernels*> sets = chance.sets(world().sets);
    const Codec codec = bound & 1 ? Codec::elias_fano : Codec::huffman;
    for (Part& part : b.parts)
      make_part(&part, b.fingerprints, query_count, bounds, *sets.front(), codec, &input);
    if (!b.sound)
      for (unsigned n = 1 + input.byte() % 2; n; --n)
        damage_part(&b.parts[input.byte() % b.parts.size()], &input);
    b.queries = make_queries(query_count, b.fingerprints, &input);
    find_truth(&b);
    const uint64_t limit = b.sound && bound >= 224 ? bound % 32 * 9 : UINT64_MAX;
    const uint64_t claimed = claims & 1   ? b.fingerprints.size()
                             : claims & 2 ? 0
                                          : uint64_t{1} << (claims >> 2);
    uint8_t behind = 0;
    // Target block finds and scans as well: here now and then.
    for (size_t i = 0; i < sets.size(); ++i)
      check_set(*sets[i], b, behind += 0x55, claimed, order, limit, claims % 4 == i);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  fuzz::with_width(input.byte(),
                   [&](auto width) { Sweeping<decltype(width)>::run(input, data, size); });
  return 0;
}
