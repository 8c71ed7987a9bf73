// Filter files: whatever the bytes, parse_filter_header and look-ups stay inside them; a filter of
// any keys lets each of them pass, also when its pages are damaged. Under checksums that fit,
// forged words and starts may say anything.
#include "filter_files.hpp"

using namespace fpstore;

namespace {

using Targets = std::pmr::vector<uint64_t>;  // leading words, ascending

constexpr uint64_t kMaxBytes = 1 << 18;  // of a file whose header was forged

Targets draw_keys(fuzz::Input* input, size_t n) {
  const unsigned shape = input->byte();
  fuzz::Random random(input->word(2));
  const uint64_t base = random.next(), varying = shape & 1 ? ~top_mask(shape >> 2) : ~uint64_t{0};
  Targets keys;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t any =
        input->left() && shape & 2 ? input->word(3) * 0x9E3779B97F4A7C15 : random.next();
    keys.push_back((base & ~varying) | (any & varying));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool passes(const FilterView& view, uint64_t target) {
  const uint64_t word = find_word(view, target);
  fetch_word(view, word);
  return word != kNoWord && may_hold(view, target, word);
}

// Looks up ascending targets one by one and in ranges. Each of `stored` must pass, and both ways
// must agree while nothing is damaged.
void look_up(const FilterView& view, const Targets& targets, const Targets& stored,
             fuzz::Random* random, bool sure, bool intact) {
  for (size_t first = 0; first < targets.size();) {
    const size_t last =
        std::min(first + random->below(random->below(4) ? 8 : 400), targets.size() - 1);
    const bool trusted = verify_range(view, targets[first], targets[last], random->below(9));
    for (size_t i = first; i <= last; ++i) {
      const bool is_stored = std::binary_search(stored.begin(), stored.end(), targets[i]);
      const bool in_range = !trusted ||
                            verified_holds(view, targets[i], find_verified_word(view, targets[i])),
                 alone = passes(view, targets[i]);
      if (sure && is_stored) REQUIRE(in_range && alone);
      if (intact && trusted) REQUIRE(in_range == alone);
    }
    first = last + 1;
  }
  if (intact) REQUIRE(!view.damaged);
}

Targets draw_targets(const Targets& keys, unsigned prefix_bits, fuzz::Random* random) {
  Targets targets(keys);
  for (size_t i = 0; i < keys.size() && i < 64; ++i) {
    targets.push_back(keys[random->below(static_cast<unsigned>(keys.size()))] ^
                      uint64_t{1} << (63 - random->below(prefix_bits)));
    targets.push_back(random->next());
  }
  for (const uint64_t end : {uint64_t{0}, ~uint64_t{0}}) targets.push_back(end);
  std::sort(targets.begin(), targets.end());
  return targets;
}

// Keys of several words, of which a filter knows the first.
std::pmr::vector<uint64_t> widened(const Targets& keys, unsigned words) {
  std::pmr::vector<uint64_t> out(keys.size() * words, ~uint64_t{0});
  for (size_t i = 0; i < keys.size(); ++i) out[i * words] = keys[i];
  return out;
}

// The share of look-ups that pass is a number that probes can go by.
void check_share(const FilterHeader& header) {
  const double share = passing_share(header);
  REQUIRE(share >= 0 && share <= 1);
}

// Overwrites bytes behind the header; where a page is large, often in the starts.
void damage(fuzz::Input* input, FilterFile* file) {
  for (unsigned n = 1 + input->byte() % 6; n; --n) {
    const unsigned where = input->byte() % 4;
    const uint64_t from = where & 1 ? file->header.starts_offset : kHeaderBytes;
    const uint64_t to = where == 3 ? file->header.checksums_offset : file->bytes;
    const uint64_t at = from + input->word(3) % (to - from);
    if (where == 1 && at + 4 <= to)
      store32(file->data.get() + (at & ~uint64_t{3}), static_cast<uint32_t>(input->word(4)));
    else if (where == 2)
      memset(file->data.get() + at, 0, std::min<uint64_t>(to - at, 1 + input->byte() * 16));
    else
      file->data[at] = input->byte();
  }
}

// A header of any bytes; the input says which of its fields are put right, so that the checks
// behind each check are reached.
void forge_header(fuzz::Input* input, const FilterFile& made, fuzz::Random* random) {
  FilterFile file;
  file.header = made.header;
  const unsigned repair = input->byte();
  FilterHeader h = made.header;
  if (repair & 1) {
    h.word_count = input->word(2) % (kMaxBytes / 8);
    draw_filter_shape(input->byte(), h.width, &h);
    h.fingerprint_count = repair & 2 ? input->word() : input->word(2);
  }
  file.header = h;
  file.allocate();
  if (file.bytes > kMaxBytes) return;
  uint8_t* const p = file.data.get();
  input->fill(p + kHeaderBytes, file.bytes - kHeaderBytes);
  fuzz::Random words(input->word(4));
  if (repair & 4)  // starts within the words, in any order
    for (uint64_t at = file.header.starts_offset; at < file.header.checksums_offset; at += 4)
      store32(p + at, static_cast<uint32_t>(words.next() % (file.header.word_count + 2)));
  file.sign();
  for (unsigned n = repair & 8 ? 1 + input->byte() % 3 : 0; n; --n) {
    const unsigned at = input->byte() % 2 ? input->byte() % 88
                                          : static_cast<unsigned>(input->word(2)) % kHeaderBytes;
    p[at] = input->byte();
  }
  if (repair & 16) store64(p + kHeaderBytes - 8, xxh64(p, kHeaderBytes - 8, 0));
  if (repair & 32) {
    // A shorter file is refused before its bytes are looked at.
    const uint64_t shorter = input->word(3) % file.bytes;
    FilterHeader parsed;
    Fault fault;
    REQUIRE(parse_filter_header(shorter < kHeaderBytes ? nullptr : p, shorter, &parsed, &fault) !=
            Status::ok);
  }
  if (!file.open()) return;
  REQUIRE(file.header.file_bytes == file.bytes);
  FilterHeader copy = file.header;
  uint8_t again[kHeaderBytes];
  Fault fault;
  REQUIRE(write_filter_header(&copy, again, &fault) == Status::ok &&
          memcmp(again, p, kHeaderBytes) == 0);
  check_share(file.header);
  if (repair & 64) file.sign();  // what the header says may be part of their seed
  look_up(file.view, draw_targets({}, file.header.prefix_bits, random), {}, random, false, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  const fuzz::Chance chance(data, size);
  fuzz::Input input(data, size);
  FilterFile file;
  const unsigned what = input.byte();
  fuzz::Random random(what);
  FilterHeader& h = file.header;
  h.width = static_cast<uint16_t>(32 << input.byte() % 4);
  h.table_count = static_cast<uint16_t>(1 + input.byte() % 4);
  h.table = static_cast<uint16_t>(random.below(h.table_count));
  h.set_digest = random.next();
  fuzz::shuffle(&random, h.permutation, h.width);
  draw_filter_shape(input.byte() | (what & 1) << 8, h.width, &h);
  const size_t most = chance.scale() == fuzz::Scale::small    ? 40
                      : chance.scale() == fuzz::Scale::medium ? 400
                                                              : 8000;
  const Targets keys = draw_keys(&input, input.word(2) % most);
  const unsigned words = words_of(h.width);
  file.make(widened(keys, words).data(), keys.size(), words,
            1 + random.below(random.below(3) ? 5 : 4096));
  REQUIRE(file.open());
  check_share(h);
  const Targets targets = draw_targets(keys, h.prefix_bits, &random);
  switch (what / 2 % 4) {
    case 0:
      look_up(file.view, targets, keys, &random, true, true);
      break;
    case 1:
      damage(&input, &file);
      look_up(file.view, targets, keys, &random, true, false);
      break;
    case 2:
      damage(&input, &file);
      file.sign();
      look_up(file.view, targets, keys, &random, false, false);
      break;
    default:
      forge_header(&input, file, &random);
  }
  return 0;
}
