#include "format/idpack.hpp"

#include <algorithm>

#include "format/xxh64.hpp"

namespace fpstore {

namespace {

unsigned width(uint64_t x) { return x ? 64 - first_bit(x) : 0; }

// Bytes of a record of n fingerprints with `total` ids.
uint64_t size_of(uint64_t n, unsigned count_bits, uint64_t total, unsigned id_bits) {
  return kRecordHeaderBytes + (n * count_bits + total * id_bits + 7) / 8;
}

// Little-endian bit stream: the first value in the lowest bits of the first byte. Writes no byte
// behind the last bit.
struct Packer {
  uint8_t* p;
  uint64_t word = 0;
  unsigned filled = 0;  // fewer than 64 bits are pending

  void put(uint64_t value, unsigned bits) {
    word |= value << filled;
    filled += bits;
    if (filled < 64) return;
    store64(p, word);
    p += 8;
    filled -= 64;
    word = filled ? value >> (bits - filled) : 0;
  }
  // Puts n fields, each less base; end is where the record ends.
  void put_all(const uint64_t* values, uint64_t n, uint64_t base, unsigned bits,
               const uint8_t* end) {
    uint64_t i = 0;
    if (bits <= 56) {  // without a branch for each: less than a byte is pending
      for (; filled >= 8; filled -= 8, word >>= 8) *p++ = static_cast<uint8_t>(word);
      for (; i < n && end - p >= 8; ++i) {
        word |= (values[i] - base) << filled;
        store64(p, word);
        filled += bits;
        p += filled / 8;
        word >>= filled / 8 * 8;
        filled %= 8;
      }
    }
    for (; i < n; ++i) put(values[i] - base, bits);
  }
  void flush() {
    for (unsigned done = 0; done < filled; done += 8) *p++ = static_cast<uint8_t>(word >> done);
  }
};

constexpr unsigned kFieldBytes = 9;  // a field of 64 bits that starts within a byte

// p has kFieldBytes readable bytes behind the byte in which the field starts; bits is not 0.
inline uint64_t wide_field(const uint8_t* p, uint64_t at, unsigned bits) {
  const uint8_t* q = p + at / 8;
  const unsigned shift = at & 7;
  const uint64_t word = load64(q) >> shift | uint64_t{q[8]} << 1 << (63 - shift);
  return word & (~uint64_t{0} >> (64 - bits));
}

// Reads no byte at or behind end; zeros stand there.
uint64_t field(const uint8_t* p, const uint8_t* end, uint64_t at, unsigned bits) {
  if (bits == 0) return 0;
  const uint64_t size = static_cast<uint64_t>(end - p), left = size - std::min(at / 8, size);
  if (left >= kFieldBytes) return wide_field(p, at, bits);
  uint8_t last[kFieldBytes] = {};
  memcpy(last, end - left, left);
  return wide_field(last, at & 7, bits);
}

// n fields one after the other, each with base added.
void unpack(const uint8_t* p, const uint8_t* end, uint64_t at, unsigned bits, uint64_t n,
            uint64_t base, uint64_t* out) {
  if (bits == 0) {
    for (uint64_t i = 0; i < n; ++i) out[i] = base;
    return;
  }
  const uint64_t size = static_cast<uint64_t>(end - p);
  const uint64_t last_start =
      size < kFieldBytes ? 0 : (size - kFieldBytes) * 8 + 7;  // of a field that can be read wide
  uint64_t wide = size < kFieldBytes || at > last_start ? 0 : (last_start - at) / bits + 1;
  if (wide > n) wide = n;
  uint64_t i = 0;
  if (bits <= 57) {  // with the bits before it in its byte, within one load
    const uint64_t mask = ~uint64_t{0} >> (64 - bits);
    for (; i < wide; ++i, at += bits) out[i] = base + (load64(p + at / 8) >> (at & 7) & mask);
  } else {
    for (; i < wide; ++i, at += bits) out[i] = base + wide_field(p, at, bits);
  }
  for (; i < n; ++i, at += bits) out[i] = base + field(p, end, at, bits);
}

uint64_t ids_at(const IdRecord& r) { return static_cast<uint64_t>(r.count) * r.count_bits; }

}  // namespace

uint64_t pack_record(const uint64_t* ids, const uint64_t* counts, uint64_t n, uint64_t seed,
                     std::vector<uint8_t>* out) {
  uint64_t total = 0, most = 1;
  for (uint64_t i = 0; i < n; ++i) {
    total += counts[i];
    most = std::max(most, counts[i]);
  }
  const auto [low, high] = std::minmax_element(ids, ids + total);
  const uint64_t base = *low;
  const unsigned id_bits = width(*high - base), count_bits = width(most - 1);
  out->resize(size_of(n, count_bits, total, id_bits));
  uint8_t* const p = out->data();
  const uint8_t* const end = p + out->size();
  p[4] = static_cast<uint8_t>(id_bits);
  p[5] = static_cast<uint8_t>(count_bits);
  store16(p + 6, static_cast<uint16_t>(n));
  store64(p + 8, base);
  Packer packer{p + kRecordHeaderBytes};
  packer.put_all(counts, n, 1, count_bits, end);
  packer.put_all(ids, total, base, id_bits, end);
  packer.flush();
  store32(p, static_cast<uint32_t>(xxh64(p + 4, out->size() - 4, seed)));
  return total;
}

uint64_t count_at(const IdRecord& r, uint32_t rank) {
  return 1 + field(r.bits, r.end, static_cast<uint64_t>(rank) * r.count_bits, r.count_bits);
}

uint64_t id_at(const IdRecord& r, uint64_t place) {
  return r.base + field(r.bits, r.end, ids_at(r) + place * r.id_bits, r.id_bits);
}

void unpack_counts(const IdRecord& r, uint64_t* counts) {
  unpack(r.bits, r.end, 0, r.count_bits, r.count, 1, counts);
}

void unpack_ids(const IdRecord& r, uint64_t* ids) {
  unpack(r.bits, r.end, ids_at(r), r.id_bits, r.total, r.base, ids);
}

uint64_t ids_of_rank(const IdRecord& r, uint32_t rank, uint64_t* first) {
  if (r.count_bits == 0) {
    *first = rank;
    return 1;
  }
  *first = 0;
  for (uint32_t i = 0; i < rank; ++i) *first += count_at(r, i);
  *first = std::min(*first, r.total);
  return std::min(count_at(r, rank), r.total - *first);
}

Status open_record(const uint8_t* data, uint64_t size, uint64_t seed, IdRecord* r, Fault* fault) {
  *fault = Fault{Status::bad_record, UINT64_MAX, kRecordHeaderBytes, size};
  if (size < kRecordHeaderBytes) return fault->status;
  const uint32_t checksum = static_cast<uint32_t>(xxh64(data + 4, size - 4, seed));
  if (checksum != load32(data)) {
    *fault = Fault{Status::bad_record, UINT64_MAX, load32(data), checksum};
    return fault->status;
  }
  r->id_bits = data[4];
  r->count_bits = data[5];
  r->count = load16(data + 6);
  r->base = load64(data + 8);
  r->bits = data + kRecordHeaderBytes;
  r->end = data + size;
  if (r->id_bits > 64 || r->count_bits > 56 || r->count == 0 || (r->count_bits && !r->id_bits))
    return fault->status;
  // The counts must lie in the record before they are summed; the sum is bounded because each id
  // takes a bit or more.
  const uint64_t bits = (size - kRecordHeaderBytes) * 8;
  if (static_cast<uint64_t>(r->count) * r->count_bits > bits) return fault->status;
  r->total = r->count;
  if (r->count_bits) {
    r->total = 0;
    constexpr uint32_t kChunk = 64;  // counts of 56 bits whose sum does not overflow
    uint64_t counts[kChunk];
    for (uint32_t i = 0; i < r->count; i += kChunk) {
      const uint32_t n = r->count - i < kChunk ? r->count - i : kChunk;
      unpack(r->bits, r->end, static_cast<uint64_t>(i) * r->count_bits, r->count_bits, n, 1,
             counts);
      for (uint32_t j = 0; j < n; ++j) r->total += counts[j];
      if (r->total > bits) return fault->status;
    }
  }
  mapped_bytes_may_change();
  if (size_of(r->count, r->count_bits, r->total, r->id_bits) != size) return fault->status;
  *fault = Fault{};
  return Status::ok;
}

}  // namespace fpstore
