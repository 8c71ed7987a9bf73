// Log records: whatever the bytes, measure_log stays inside them and believes only whole records,
// and copy_log copies what was packed.
#include <cstring>
#include <memory>

#include "input.hpp"
#include "format/log.hpp"
#include "format/xxh64.hpp"

using namespace fpstore;

namespace {

struct Record {
  uint64_t number, durable;
  LogTotals totals;
  uint32_t words;  // of a fingerprint
  std::vector<uint64_t> fingerprints, ids;
  std::vector<uint8_t> kinds;
  std::vector<std::vector<uint8_t>> strings;
};

void put64(std::vector<uint8_t>* out, uint64_t x) {
  for (unsigned i = 0; i < 8; ++i) out->push_back(static_cast<uint8_t>(x >> 8 * i));
}

uint64_t get64(const uint8_t* p) {
  uint64_t x = 0;
  for (unsigned i = 8; i--;) x = x << 8 | p[i];
  return x;
}

Record make_record(fuzz::Input* input, uint64_t number, uint32_t words) {
  Record r{number,
           input->word(2),
           {input->word(3), input->word(2), input->word(8), input->byte() % 3u},
           words,
           {},
           {},
           {},
           {}};
  for (unsigned n = input->byte() % 5; n; --n) {
    for (uint32_t i = 0; i < words; ++i) r.fingerprints.push_back(input->word());
    r.ids.push_back(input->word(2));
    r.kinds.push_back(static_cast<uint8_t>(input->byte() % 3 | (input->byte() & 1) << 2));
  }
  for (unsigned n = input->byte() % 4; n; --n) {
    r.strings.emplace_back(input->byte() % 12);
    input->fill(r.strings.back().data(), r.strings.back().size());
  }
  return r;
}

void seal(uint8_t* p, size_t length, uint64_t seed) {
  const uint64_t sum = xxh64(p + 16, length - 16, seed);
  for (unsigned i = 0; i < 8; ++i) p[8 + i] = static_cast<uint8_t>(sum >> 8 * i);
}

// Appends a record as docs/format.md draws it.
void append(std::vector<uint8_t>* log, const Record& r, uint64_t place, uint64_t seed) {
  std::vector<uint8_t> out;
  for (const char c : {'F', 'P', 'C', 'H', 'A', 'N', 'G', 'E'})
    out.push_back(static_cast<uint8_t>(c));
  for (const uint64_t x : {uint64_t{0}, uint64_t{0}, r.number, r.durable, r.totals.fingerprints,
                           r.totals.ids, r.totals.next_row, uint64_t{r.kinds.size()},
                           uint64_t{r.strings.size()}, r.totals.id_kind | uint64_t{r.words} << 32})
    put64(&out, x);
  for (const uint64_t x : r.fingerprints) put64(&out, x);
  for (const uint64_t x : r.ids) put64(&out, x);
  out.insert(out.end(), r.kinds.begin(), r.kinds.end());
  for (const auto& s : r.strings) {
    for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(s.size() >> 8 * i));
    out.insert(out.end(), s.begin(), s.end());
  }
  for (unsigned i = 0; i < 8; ++i)
    out[16 + i] = static_cast<uint8_t>(uint64_t{out.size()} >> 8 * i);
  seal(out.data(), out.size(), seed ^ place);
  out.resize((out.size() + 7) / 8 * 8);
  log->insert(log->end(), out.begin(), out.end());
}

// The oracle: reads one record slowly; false when it is not whole.
bool parse(const std::vector<uint8_t>& log, size_t at, uint64_t place, uint64_t seed, Record* r,
           size_t* next) {
  const size_t left = log.size() - at;
  const uint8_t* p = log.data() + at;
  if (left < 88 || memcmp(p, "FPCHANGE", 8)) return false;
  const uint64_t length = get64(p + 16), rows = get64(p + 64), strings = get64(p + 72);
  if (length < 88 || length > left || left - length < (8 - length % 8) % 8) return false;
  if (xxh64(p + 16, length - 16, seed ^ place) != get64(p + 8)) return false;
  *r = Record{get64(p + 24),
              get64(p + 32),
              {get64(p + 40), get64(p + 48), get64(p + 56), get64(p + 80) & 0xFFFFFFFF},
              static_cast<uint32_t>(get64(p + 80) >> 32),
              {},
              {},
              {},
              {}};
  const size_t words = r->words;
  if ((words != 1 && words != 2 && words != 4) || r->totals.id_kind > 2 || rows > length)
    return false;
  size_t end = 88 + (8 * words + 9) * static_cast<size_t>(rows);
  if (end > length) return false;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < words; ++k)
      r->fingerprints.push_back(get64(p + 88 + 8 * (words * i + k)));
    r->ids.push_back(get64(p + 88 + 8 * (words * rows + i)));
    r->kinds.push_back(p[88 + 8 * (words + 1) * rows + i]);
    if ((r->kinds.back() & 3) == 3 || r->kinds.back() > 7) return false;
  }
  for (uint64_t i = 0; i < strings; ++i) {
    if (length - end < 4) return false;
    const size_t n =
        p[end] | p[end + 1] << 8 | p[end + 2] << 16 | static_cast<size_t>(p[end + 3]) << 24;
    end += 4;
    if (length - end < n) return false;
    r->strings.emplace_back(p + end, p + end + n);
    end += n;
  }
  *next = at + (length + 7) / 8 * 8;
  return end == length;
}

template <class T>
std::unique_ptr<T[]> exactly(uint64_t n) {
  return std::unique_ptr<T[]>(new T[n ? n : 1]());
}

void check(const std::vector<uint8_t>& log, uint64_t place, uint64_t seed, uint64_t number,
           uint64_t of_words, uint64_t most) {
  std::vector<Record> expected;
  size_t at = 0;
  uint64_t wanted = number;
  while (expected.size() < most) {
    Record r;
    size_t next;
    if (!parse(log, at, place + at, seed, &r, &next) || (wanted && r.number != wanted)) break;
    if (of_words ? r.words != of_words : !expected.empty() && r.words != expected.front().words)
      break;
    wanted = r.number + 1;
    at = next;
    expected.push_back(r);
  }
  const std::unique_ptr<uint8_t[]> data = exactly<uint8_t>(log.size());
  if (!log.empty()) memcpy(data.get(), log.data(), log.size());
  const LogRecords got = measure_log(data.get(), log.size(), place, seed, number, of_words, most);
  REQUIRE(got.records == expected.size() && got.bytes == at);
  const uint64_t words = of_words ? of_words : expected.empty() ? 1 : expected.front().words;
  REQUIRE(got.words == words);
  uint64_t rows = 0, strings = 0, bytes = 0;
  for (const Record& r : expected) {
    rows += r.kinds.size();
    strings += r.strings.size();
    for (const auto& s : r.strings) bytes += s.size();
  }
  REQUIRE(got.rows == rows && got.strings == strings && got.string_bytes == bytes);
  if (!expected.empty()) {
    const Record& last = expected.back();
    REQUIRE(got.number == last.number && got.durable == last.durable);
    REQUIRE(!memcmp(&got.totals, &last.totals, sizeof last.totals));
  }
  const auto kinds = exactly<uint8_t>(rows), text = exactly<uint8_t>(bytes);
  const auto fingerprints = exactly<uint64_t>(rows * words), ids = exactly<uint64_t>(rows),
             lims = exactly<uint64_t>(strings + 1);
  copy_log(data.get(), got,
           LogColumns{kinds.get(), fingerprints.get(), ids.get(), lims.get(), text.get()});
  size_t row = 0, string = 0;
  for (const Record& r : expected) {
    for (size_t i = 0; i < r.kinds.size(); ++i, ++row) {
      REQUIRE(kinds[row] == r.kinds[i] && ids[row] == r.ids[i]);
      for (uint64_t k = 0; k < words; ++k)
        REQUIRE(fingerprints[row * words + k] == r.fingerprints[i * words + k]);
    }
    for (const auto& s : r.strings) {
      REQUIRE(lims[string + 1] - lims[string] == s.size());
      REQUIRE(s.empty() || !memcmp(text.get() + lims[string], s.data(), s.size()));
      ++string;
    }
  }
}

// Of all records, or now and then of each another number.
uint32_t record_words(unsigned width, unsigned record) {
  return 1u << (width < 224 ? width : width + record) % 3;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const unsigned shape = input.byte(), width = input.byte();
  const uint64_t place = 8 * input.word(2), seed = input.word(2), first = 1 + input.byte();
  std::vector<uint8_t> log;
  std::vector<size_t> starts;
  for (unsigned n = input.byte() % 5, i = 0; i < n; ++i) {
    starts.push_back(log.size());
    append(
        &log,
        make_record(&input, first + i + (shape & 1 && input.byte() < 20), record_words(width, i)),
        place + log.size(), seed);
  }
  if (shape & 2) {  // bytes of the input behind the records
    const size_t before = log.size();
    log.resize(before + input.byte() % 100);
    input.fill(log.data() + before, log.size() - before);
  }
  for (unsigned n = shape & 4 ? input.byte() % 4 : 0; n && !log.empty();
       --n) {  // changed words, under right checksums or wrong ones
    const size_t start = starts.empty() ? 0 : starts[input.byte() % starts.size()];
    const size_t at = start + input.byte() % 128;
    const uint64_t length = start + 88 <= log.size() ? get64(log.data() + start + 16) : 0;
    const uint64_t x = input.byte() & 1 ? input.word() : input.byte();
    for (unsigned i = 0; i < 8 && at + i < log.size(); ++i)
      log[at + i] = static_cast<uint8_t>(x >> 8 * i);
    const uint64_t now = start + 88 <= log.size() ? get64(log.data() + start + 16) : 0;
    if (input.byte() & 1)
      for (const uint64_t l : {length, now})
        if (l >= 88 && l <= log.size() - start) seal(log.data() + start, l, seed ^ (place + start));
  }
  if (shape & 8) log.resize(log.size() - (log.empty() ? 0 : input.word(2) % (log.size() + 1)));
  const uint64_t of_words = uint64_t{1} << shape / 64 >> 1;  // 0, 1, 2, 4
  check(log, place, seed, shape & 16 ? 0 : first, of_words,
        shape & 32 ? input.byte() % 4 : ~uint64_t{0});
  return 0;
}
