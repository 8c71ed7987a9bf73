// Blocks: an in-memory table around the input, with right checksums, so that the decoders see every
// lie a block can tell. Each instruction set gets its own copy, exactly as long as the contract
// says and followed by other bytes; all must agree, with a slow decoder as well, and with a
// brute-force search when the table is sound.
#include <tuple>

#include "blocks.hpp"

namespace {

template <class W>
struct Searching : Blocks<W> {
  using Base = Blocks<W>;
  using Base::right_directory;
  using Base::world;
  using typename Base::Copy;
  using typename Base::Row;
  using typename Base::Rows;
  using typename Base::Table;
  using typename Base::Values;
  using typename Base::World;
  using Found = Match<Row>;

  static void make_directory(Table* t, fuzz::Input* input) {
    const unsigned choice = input->byte();
    t->directory_bits = choice % 6;
    t->directory = right_directory(*t);
    if (choice < 240) return;
    const unsigned value = input->byte();
    t->directory[input->byte() % t->directory.size()] = value < 200 ? value % 8 : input->word();
  }

  using Matches = std::pmr::vector<std::tuple<Row, uint32_t, uint32_t>>;

  // Everything one instruction set says about a table.
  struct Answer {
    std::pmr::vector<std::tuple<Status, uint64_t, uint64_t, uint64_t>> faults;
    std::pmr::vector<uint64_t> words;  // of each target its block and rank
    Status probe_status = Status::ok;
    Status swept_status = Status::ok;
    uint64_t blocks_read = 0;
    uint64_t candidates = 0;
    Matches probed;
    Matches swept;
    Matches scanned;

    void note(Status status, const Fault& fault) {
      if (status != Status::ok) REQUIRE(fault.status == status);
      if (status == Status::ok)
        faults.emplace_back(status, 0, 0, 0);
      else
        faults.emplace_back(status, fault.block, fault.expected, fault.got);
    }
    // What a probe says of blocks that lie under a right checksum depends on how much of them it
    // decodes.
    bool operator==(const Answer& o) const {
      return faults == o.faults && words == o.words && scanned == o.scanned;
    }
  };

  // The matches in a sink, sorted, which each name their true distance, and no fingerprint twice.
  static Matches take(Sink* sink, const Rows& queries, unsigned radius) {
    Matches found;
    for (uint64_t i = 0; i < sink->count; ++i) {
      const Found& m = fpstore::matches<Row>(*sink)[i];
      REQUIRE(m.query < queries.size() && m.distance <= radius);
      REQUIRE(ones(m.fingerprint ^ queries[m.query]) == m.distance);
      found.emplace_back(m.fingerprint, m.query, m.distance);
    }
    release(sink);
    std::sort(found.begin(), found.end());
    return found;
  }

  // The nearest that a scan keeps of each query are the first of all its matches by distance and
  // fingerprint.
  static void check_nearest(const Kernels& set, const TableView& view, const Queries& queries,
                            unsigned radius, Matches all) {
    Nearest nearest;
    Sink sink;
    Fault fault;
    const uint64_t limit = 1 + all.size() % 5;
    REQUIRE(start_nearest(&nearest, W::kWords, queries.count, limit, radius));
    REQUIRE(set.scan(view, {0, view.block_count}, queries, {radius, nullptr, &nearest}, &sink,
                     &fault) == Status::ok);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return std::make_tuple(std::get<1>(a), std::get<2>(a), std::get<0>(a)) <
             std::make_tuple(std::get<1>(b), std::get<2>(b), std::get<0>(b));
    });
    std::pmr::vector<uint64_t> counts(queries.count);
    Matches expected;
    for (const auto& match : all)
      if (counts[std::get<1>(match)]++ < limit) expected.push_back(match);
    for (size_t i = 0; i < queries.count; ++i)
      REQUIRE(nearest.queries[i].more == (counts[i] > limit));
    REQUIRE(!sink.count && hand_over(&nearest, &sink));
    const Row* const first = rows<Row>(queries.words);
    const Rows asked(first, first + queries.count);
    std::sort(expected.begin(), expected.end());
    REQUIRE(take(&sink, asked, radius) == expected);
    release(&nearest);
  }

  struct Questions {
    Rows targets;  // unpermuted
    unsigned prefix_bits[2];
    unsigned flips[2];
    std::vector<uint64_t> variants[2];
    unsigned radius;
    uint64_t room;
    uint64_t fingerprint_count;  // what the table claims: some sets choose by it between two ways
                                 // of searching a block
  };

  static Questions make_questions(const Table& t, const Rows& entries, fuzz::Input* input) {
    Questions q;
    const Permutation& inverse = world().inverse[t.permutation];
    q.targets = {apply(inverse, fuzz::input_row<W>(input)),
                 apply(inverse, t.keys[input->byte() % t.count()])};
    for (unsigned i = 0, n = entries.size() > 1000 ? 1 : 2; i < n && !entries.empty(); ++i) {
      Row e = entries[input->word(2) % entries.size()];
      const unsigned flip = input->byte();
      if (flip < 96)
        e = e ^ fuzz::one_bit<W>(input->byte() % W::kBits);
      else if (flip < 160)
        e = fuzz::plus<W>(e, flip < 128 ? 1 : -1);
      q.targets.push_back(apply(inverse, e));
    }
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned choice = input->byte();
      q.prefix_bits[i] = choice % (W::kLast + 2);
      q.flips[i] =
          q.prefix_bits[i] && (q.prefix_bits[i] <= 8 || choice >= 250) ? choice / 65 % 2 : 0;
      q.variants[i].push_back(0);
      for (unsigned bit = 64 - q.prefix_bits[i]; q.flips[i] && bit < 64; ++bit)
        q.variants[i].push_back(uint64_t{1} << bit);
    }
    const unsigned radius = input->byte();
    q.radius = radius < 160 ? radius % 16 : radius * 17 % (W::kBits + 2);
    const unsigned claims = input->byte();
    q.room = kRoom >> (claims & 1);
    q.fingerprint_count = claims & 2 ? 0 : uint64_t{1} << (claims >> 2);
    return q;
  }

  static Answer ask(const Kernels& set, const Table& t, const Table& second, const Questions& q,
                    uint8_t behind, const std::pmr::vector<Values>& slow,
                    const std::pmr::vector<bool>& decodes) {
    const World& w = world();
    static Copy copies[2];
    copies[0].load(t, behind, q.fingerprint_count);
    copies[1].load(second, behind, q.fingerprint_count);
    const TableView& view = copies[0].view;

    Answer answer;
    Fault fault;
    Values all;
    bool all_right = true;
    for (uint64_t b = 0; b < t.count(); ++b) {
      uint32_t count = 0;
      Decoded to{reinterpret_cast<uint64_t*>(w.out.get()), kRoom, &count};
      const Status status = set.decode_blocks(view, {b, b + 1}, &to, &fault);
      answer.note(status, fault);
      const bool right = decodes[b] && slow[b].back() == t.keys[b];
      REQUIRE((status == Status::ok) == right);
      all_right = all_right && right;
      if (!right) continue;
      REQUIRE(to.blocks == 1 && to.written == count && count == slow[b].size());
      REQUIRE(std::equal(slow[b].begin(), slow[b].end(), w.out.get()));
      all.insert(all.end(), slow[b].begin(), slow[b].end());
    }
    // All of them, as many at once as the room takes, at its end, so that nothing is written past
    // it.
    Row* const out = w.out.get() + kRoom - q.room;
    std::vector<uint32_t> counts(t.count());
    Status decoded = Status::ok;
    for (uint64_t next = 0, at = 0; next < t.count();) {
      Decoded to{reinterpret_cast<uint64_t*>(out), q.room, counts.data()};
      decoded = set.decode_blocks(view, {next, t.count()}, &to, &fault);
      if (decoded != Status::ok) break;
      REQUIRE(to.blocks > 0 && to.blocks <= t.count() - next && to.written <= all.size() - at &&
              std::equal(out, out + to.written, all.begin() + at));
      for (uint64_t b = 0, sum = 0; b < to.blocks; sum += counts[b++])
        REQUIRE(counts[b] == slow[next + b].size() && sum <= to.written);
      next += to.blocks;
      at += to.written;
    }
    answer.note(decoded, fault);
    REQUIRE((decoded == Status::ok) == all_right);

    std::vector<uint64_t> places(q.targets.size());
    std::vector<uint32_t> ranks(q.targets.size());
    for (size_t i = 0; i < q.targets.size(); ++i) {
      const Status status = set.locate(view, {fuzz::words(q.targets) + i * W::kWords, 1},
                                       &places[i], &ranks[i], nullptr, &fault);
      answer.note(status, fault);
      if (status != Status::ok) continue;
      if (places[i] != UINT64_MAX)
        REQUIRE(places[i] < t.count() &&
                ranks[i] < load16(t.blocks.data() + places[i] * t.block_bytes + 4));
      answer.words.insert(answer.words.end(), {places[i], ranks[i]});
    }

    TableProbe probes[2];
    for (unsigned i = 0; i < 2; ++i) {
      probes[i] = TableProbe{&copies[i].view,      q.prefix_bits[i],    q.flips[i], {},
                             q.variants[i].data(), q.variants[i].size()};
      *rows<Row>(probes[i].condition) =
          apply(copies[i].view.inverse, fuzz::top_bits<W>(q.prefix_bits[i]));
    }
    Sink sink;
    ProbeCounters counters;
    const Queries queries{fuzz::words(q.targets), q.targets.size()};
    fault.table = 99;
    answer.probe_status =
        set.probe({probes, 0, 2}, queries, ProbeOptions{q.radius}, &sink, &counters, &fault);
    REQUIRE(fault.table < 2 &&
            (answer.probe_status == Status::ok || fault.status == answer.probe_status));
    answer.probed = take(&sink, q.targets, q.radius);
    answer.blocks_read = counters.blocks;
    answer.candidates = counters.candidates;
    ProbeOptions sweep{q.radius};
    sweep.order = Order::sorted;
    answer.swept_status = set.probe({probes, 0, 2}, queries, sweep, &sink, &counters, &fault);
    REQUIRE(fault.table < 2 &&
            (answer.swept_status == Status::ok || fault.status == answer.swept_status));
    answer.swept = take(&sink, q.targets, q.radius);

    const Queries few{fuzz::words(q.targets), std::min<size_t>(q.targets.size(), 2)};
    const Status status = set.scan(view, {0, t.count()}, few, {q.radius}, &sink, &fault);
    answer.note(status, fault);
    REQUIRE((status == Status::ok) == all_right);
    answer.scanned = take(&sink, q.targets, q.radius);
    if (all_right) check_nearest(set, view, few, q.radius, answer.scanned);
    return answer;
  }

  // Another table of the same entries, with another permutation and another code.
  static Table second_table(const Table& t, Rows entries, const std::vector<const Kernels*>& sets,
                            fuzz::Input* input) {
    const World& w = world();
    Table second;
    second.code = Base::code_of_all(input->byte(), t.code->codec);
    second.permutation = input->byte() % kPermutations;
    second.block_bytes = kMinBlockBytes << (input->byte() & 1);
    second.seed = t.seed + 1;
    for (Row& e : entries)
      e = apply(w.forward[second.permutation], apply(w.inverse[t.permutation], e));
    std::sort(entries.begin(), entries.end());
    entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
    Base::encode_table(&second, entries, sets);
    second.directory_bits = input->byte() % 6;
    second.directory = right_directory(second);
    return second;
  }

  // What a sound table must answer, by brute force.
  struct Truth {
    std::pmr::vector<uint64_t> words;
    Matches probed;
    Matches scanned;
    uint64_t candidates = 0;
  };

  static Truth find_truth(const Table& t, const Table& second, const Questions& q,
                          const std::pmr::vector<Values>& blocks) {
    const Permutation& inverse = world().inverse[t.permutation];
    Truth truth;
    for (uint32_t i = 0; i < q.targets.size(); ++i) {
      const Row target = apply(world().forward[t.permutation], q.targets[i]);
      uint64_t place = UINT64_MAX, rank = 0;
      for (uint64_t b = 0; b < blocks.size(); ++b)
        for (uint64_t r = 0; r < blocks[b].size(); ++r) {
          const Row difference = blocks[b][r] ^ target;
          const uint32_t distance = ones(difference);
          if (!distance) place = b, rank = r;
          bool reached = false;
          const Row fingerprint = apply(inverse, blocks[b][r]);
          const Row other = apply(world().forward[second.permutation], fingerprint ^ q.targets[i]);
          for (unsigned k = 0; k < 2; ++k)
            if (ones((k ? other : difference) & fuzz::top_bits<W>(q.prefix_bits[k])) <= q.flips[k])
              reached = true, ++truth.candidates;
          if (distance > q.radius) continue;
          if (reached) truth.probed.emplace_back(fingerprint, i, distance);
          if (i < 2) truth.scanned.emplace_back(fingerprint, i, distance);
        }
      truth.words.insert(truth.words.end(), {place, rank});
    }
    std::sort(truth.probed.begin(), truth.probed.end());
    std::sort(truth.scanned.begin(), truth.scanned.end());
    return truth;
  }

  static void check_sound(const Truth& truth, const Answer& answer) {
    for (const auto& fault : answer.faults) REQUIRE(std::get<0>(fault) == Status::ok);
    REQUIRE(answer.probe_status == Status::ok && answer.swept_status == Status::ok);
    REQUIRE(answer.words == truth.words);
    REQUIRE(answer.probed == answer.swept && answer.probed == truth.probed);
    REQUIRE(answer.scanned == truth.scanned);
    // A set may compute the distance of every entry of a block that it has opened.
    REQUIRE(answer.candidates >= truth.candidates);
    REQUIRE(answer.blocks_read > 0);
  }

  static void run(fuzz::Input& input, const uint8_t* data, size_t size) {
    const World& w = world();
    Table t;
    const unsigned shape = input.byte();
    t.code = &w.codes[input.byte() % kCodes];
    t.permutation = input.byte() % kPermutations;
    const fuzz::Chance chance(data, size);
    const std::vector<const Kernels*> sets = chance.sets(w.sets, 4);
    const bool small = chance.scale() == fuzz::Scale::small;
    // Small blocks more often than large ones: they are quick.
    static const uint32_t sizes[] = {128, 128, 128, 128, 128, 128, 256,  512,
                                     128, 128, 128, 128, 256, 512, 1024, 4096};
    t.block_bytes = sizes[small ? shape % 8 : 8 + shape % 8];
    t.seed = input.word();
    if (shape & 64) {
      Base::encode_table(&t, Base::make_keys(t.code->lengths, small ? 63 : 255, &input), sets);
      if (shape & 128) Base::damage(&t, &input);
    } else {
      Base::raw_table(&t, 7, &input);
    }
    for (uint64_t b = 0; b < t.count(); ++b) t.seal(b);
    make_directory(&t, &input);

    std::pmr::vector<Values> slow(t.count());
    std::pmr::vector<bool> decodes(t.count());
    Rows entries;
    const bool directory_right = t.directory == right_directory(t);
    bool sound = directory_right;
    for (uint64_t b = 0; b < t.count(); ++b) {
      decodes[b] = Base::slow_decode(&t, b, &slow[b]);
      sound = sound && decodes[b] && slow[b].back() == t.keys[b];
      if (decodes[b]) entries.insert(entries.end(), slow[b].begin(), slow[b].end());
    }
    const auto descends = [](const Row& a, const Row& b) { return b <= a; };
    sound = sound && !t.lies_of_ties &&
            std::adjacent_find(entries.begin(), entries.end(), descends) == entries.end();
    if ((shape & 192) == 64 && directory_right) REQUIRE(sound);
    const bool keys_ascend =
        std::adjacent_find(t.keys.begin(), t.keys.end(), descends) == t.keys.end();

    const Questions q = make_questions(t, entries, &input);
    // A long table is its own second: it need not be sorted and encoded.
    const Table second =
        entries.empty() || entries.size() > 1000 ? t : second_table(t, entries, sets, &input);
    const Truth truth = sound ? find_truth(t, second, q, slow) : Truth{};
    Answer first;
    for (size_t i = 0; i < sets.size(); ++i) {
      Answer answer = ask(*sets[i], t, second, q, static_cast<uint8_t>(i * 0x55), slow, decodes);
      if (i == 0) first = answer;
      // A search among keys that do not ascend may end anywhere.
      if (keys_ascend) REQUIRE(answer == first);
      if (sound) {
        check_sound(truth, answer);
        REQUIRE(answer.blocks_read == first.blocks_read);
      }
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  fuzz::with_width(input.byte(),
                   [&](auto width) { Searching<decltype(width)>::run(input, data, size); });
  return 0;
}
