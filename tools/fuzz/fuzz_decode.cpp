// The block decoder alone, at speed: up to seven blocks of input bytes under right checksums,
// decoded by each instruction set, one by one and side by side, and by the slow decoder.
#include "blocks.hpp"

namespace {

template <class W>
struct Decoding : Blocks<W> {
  using Base = Blocks<W>;
  using Base::world;
  using typename Base::Code;
  using typename Base::Copy;
  using typename Base::Row;
  using typename Base::Table;
  using typename Base::Values;

  // Everything that is decoded lies at the end of an allocation, and so does the overread that the
  // contract allows.
  static void check(const Kernels& set, const Table& t, const std::pmr::vector<Values>& slow,
                    const std::pmr::vector<bool>& right) {
    static Copy copy;
    copy.load(t, 0x5A, 0);
    const TableView& view = copy.view;

    Row* const out = world().out.get();
    Fault fault;
    uint32_t count;
    std::vector<Row> all;
    bool fine = true;
    for (uint64_t b = 0; b < t.count(); ++b) {
      Decoded to{reinterpret_cast<uint64_t*>(out), kRoom, &count};
      const Status status = set.decode_blocks(view, {b, b + 1}, &to, &fault);
      REQUIRE((status == Status::ok) == right[b]);
      fine = fine && right[b];
      if (!right[b]) continue;
      REQUIRE(to.written == slow[b].size() && count == to.written &&
              std::equal(slow[b].begin(), slow[b].end(), out));
      all.insert(all.end(), slow[b].begin(), slow[b].end());
    }
    std::vector<uint32_t> counts(t.count());
    uint64_t b = 0, at = 0;
    Status status = Status::ok;
    while (b < t.count() && status == Status::ok) {
      Decoded to{reinterpret_cast<uint64_t*>(out), kRoom, counts.data()};
      status = set.decode_blocks(view, {b, t.count()}, &to, &fault);
      if (status != Status::ok) break;
      REQUIRE(to.blocks > 0 && at + to.written <= all.size() &&
              std::equal(out, out + to.written, all.begin() + at));
      b += to.blocks;
      at += to.written;
    }
    REQUIRE((status == Status::ok) == fine);
  }

  static void run(fuzz::Input& input) {
    static Table t;
    const unsigned shape = input.byte();
    t.code = &world().codes[input.byte() % kCodes];
    t.directory = {0, 0};
    t.directory_bits = 0;
    t.permutation = 0;
    t.block_bytes = shape & 1 ? 256 : kMinBlockBytes;
    t.seed = input.byte();
    if (shape & 2) {
      Base::encode_table(&t, Base::make_keys(t.code->lengths, 255, &input), world().sets);
      if (shape & 4) Base::damage(&t, &input);
    } else {
      Base::raw_table(&t, 7, &input);
    }
    for (uint64_t b = 0; b < t.count(); ++b) t.seal(b);
    std::pmr::vector<Values> slow(t.count());
    std::pmr::vector<bool> right(t.count());
    for (uint64_t b = 0; b < t.count(); ++b)
      right[b] = Base::slow_decode(&t, b, &slow[b]) && slow[b].back() == t.keys[b];
    for (const Kernels* set : world().sets) check(*set, t, slow, right);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  fuzz::with_width(input.byte(), [&](auto width) { Decoding<decltype(width)>::run(input); });
  return 0;
}
