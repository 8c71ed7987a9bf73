#include "format/log.hpp"

#include "format/xxh64.hpp"

namespace fpstore {
namespace {

constexpr char kMagic[9] = "FPCHANGE";
constexpr size_t kChecksumAt = 8;
constexpr size_t kCheckedFrom = 16;
constexpr size_t kHead = 88;
constexpr size_t kAlign = 8;
constexpr uint64_t kIdKinds = 3;
constexpr uint8_t kKindBits = 3;  // of a kind: 0 to 2
constexpr uint8_t kInBase = 4;    // the fingerprint is in the tables

struct Head {
  uint64_t length, number, durable, rows, strings;
  uint32_t words;  // of a fingerprint
  LogTotals totals;

  // Bytes of the fingerprint, the id and the kind of a row.
  size_t row_bytes() const { return 8 * words + 9; }
};

Head read_head(const uint8_t* p) {
  return Head{load64(p + 16),
              load64(p + 24),
              load64(p + 32),
              load64(p + 64),
              load64(p + 72),
              load32(p + 84),
              {load64(p + 40), load64(p + 48), load64(p + 56), load32(p + 80)}};
}

// Bytes of the strings of a record with a right checksum, or SIZE_MAX when they do not end where
// the record ends.
size_t string_bytes(const uint8_t* p, const Head& h) {
  size_t at = kHead + h.row_bytes() * h.rows, total = 0;
  for (uint64_t i = 0; i < h.strings; ++i) {
    if (h.length - at < 4) return SIZE_MAX;
    const size_t n = load32(p + at);
    at += 4;
    if (h.length - at < n) return SIZE_MAX;
    at += n;
    total += n;
  }
  return at == h.length ? total : SIZE_MAX;
}

bool is_whole(const uint8_t* p, size_t n, uint64_t place, uint64_t seed, Head* h, size_t* strings) {
  if (n < kHead || memcmp(p, kMagic, 8) != 0) return false;
  *h = read_head(p);
  if (h->words != 1 && h->words != 2 && h->words != 4) return false;
  if (h->length < kHead || h->length > n || h->rows > (h->length - kHead) / h->row_bytes() ||
      h->totals.id_kind >= kIdKinds)
    return false;
  if (xxh64(p + kCheckedFrom, h->length - kCheckedFrom, seed ^ place) != load64(p + kChecksumAt))
    return false;
  const uint8_t* kinds = p + kHead + 8 * (h->words + 1) * h->rows;
  bool known = true;
  for (uint64_t i = 0; i < h->rows; ++i)
    known &= (kinds[i] & kKindBits) != kKindBits && kinds[i] <= (kKindBits | kInBase);
  *strings = string_bytes(p, *h);
  return known && *strings != SIZE_MAX;
}

}  // namespace

LogRecords measure_log(const uint8_t* data, size_t n, uint64_t place, uint64_t seed,
                       uint64_t number, uint64_t words, uint64_t most) {
  LogRecords out{};
  out.words = words ? words : 1;
  while (out.records < most) {
    const uint8_t* p = data + out.bytes;
    const size_t left = n - static_cast<size_t>(out.bytes);
    Head h;
    size_t strings;
    if (!is_whole(p, left, place + out.bytes, seed, &h, &strings)) break;
    if (number && h.number != number) break;
    if ((words || out.records) && h.words != out.words) break;
    const uint64_t padded = (h.length + kAlign - 1) / kAlign * kAlign;
    if (padded > left) break;
    number = h.number + 1;
    ++out.records;
    out.bytes += padded;
    out.number = h.number;
    out.words = h.words;
    out.durable = h.durable;
    out.rows += h.rows;
    out.strings += h.strings;
    out.string_bytes += strings;
    out.totals = h.totals;
  }
  return out;
}

void copy_log(const uint8_t* data, const LogRecords& measured, const LogColumns& out) {
  uint64_t row = 0, string = 0, byte = 0;
  out.string_lims[0] = 0;
  const uint8_t* p = data;
  for (uint64_t r = 0; r < measured.records; ++r) {
    const Head h = read_head(p);
    const uint8_t* words = p + kHead;
    const uint8_t* const ids = words + 8 * h.words * h.rows;
    memcpy(out.fingerprints + row * h.words, words, 8 * h.words * h.rows);
    memcpy(out.ids + row, ids, 8 * h.rows);
    memcpy(out.kinds + row, ids + 8 * h.rows, h.rows);
    row += h.rows;
    const uint8_t* s = words + h.row_bytes() * h.rows;
    for (uint64_t i = 0; i < h.strings; ++i) {
      const size_t n = load32(s);
      memcpy(out.string_data + byte, s + 4, n);
      byte += n;
      s += 4 + n;
      out.string_lims[++string] = byte;
    }
    p += (h.length + kAlign - 1) / kAlign * kAlign;
  }
}

}  // namespace fpstore
