// The block decoder alone, at speed: up to seven blocks of input bytes under right checksums, decoded by each instruction set, one
// by one and side by side, and by the slow decoder.
#include "blocks.hpp"

namespace {

// Everything that is decoded lies at the end of an allocation, and so does the overread that the contract allows.
void check(const Kernels& set, const Table& t, const std::pmr::vector<Values>& slow, const std::pmr::vector<bool>& right) {
  static TableView view;
  static const Code* loaded = nullptr;
  if (loaded != t.code) view.code = t.code->decode;  // large: not copied needlessly
  loaded = t.code;
  std::unique_ptr<uint8_t[]> blocks(new uint8_t[t.blocks.size() + kOverread]);
  std::copy(t.blocks.begin(), t.blocks.end(), blocks.get());
  memset(blocks.get() + t.blocks.size(), 0x5A, kOverread);
  view.blocks = blocks.get();
  view.keys = t.keys.data();
  view.block_count = t.keys.size();
  view.seed = t.seed;
  view.block_bytes = t.block_bytes;

  uint64_t* const out = world().out.get();
  Fault fault;
  uint32_t count;
  std::vector<uint64_t> all;
  bool fine = true;
  for (uint64_t b = 0; b < t.count(); ++b) {
    Decoded to{out, kRoom, &count};
    const Status status = set.decode_blocks(view, {b, b + 1}, &to, &fault);
    REQUIRE((status == Status::ok) == right[b]);
    fine = fine && right[b];
    if (!right[b]) continue;
    REQUIRE(to.written == slow[b].size() && count == to.written && std::equal(slow[b].begin(), slow[b].end(), out));
    all.insert(all.end(), slow[b].begin(), slow[b].end());
  }
  std::vector<uint32_t> counts(t.count());
  uint64_t b = 0, at = 0;
  Status status = Status::ok;
  while (b < t.count() && status == Status::ok) {
    Decoded to{out, kRoom, counts.data()};
    status = set.decode_blocks(view, {b, t.count()}, &to, &fault);
    if (status != Status::ok) break;
    REQUIRE(to.blocks > 0 && at + to.written <= all.size() && std::equal(out, out + to.written, all.begin() + at));
    b += to.blocks;
    at += to.written;
  }
  REQUIRE((status == Status::ok) == fine);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  static Table t;
  const unsigned shape = input.byte();
  t.code = &world().codes[input.byte() % kCodes];
  t.block_bytes = shape & 1 ? 256 : kMinBlockBytes;
  t.seed = input.byte();
  if (shape & 2) {
    encode_table(&t, make_keys(t.code->lengths, 255, &input), world().sets);
    if (shape & 4) damage(&t, &input);
  } else {
    raw_table(&t, 7, &input);
  }
  for (uint64_t b = 0; b < t.count(); ++b) t.seal(b);
  std::pmr::vector<Values> slow(t.count());
  std::pmr::vector<bool> right(t.count());
  for (uint64_t b = 0; b < t.count(); ++b) right[b] = slow_decode(&t, b, &slow[b]) && slow[b].back() == t.keys[b];
  for (const Kernels* set : world().sets) check(*set, t, slow, right);
  return 0;
}
