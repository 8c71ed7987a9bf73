// Column tables and row files: probes, scans and look-ups against brute force; damaged bytes: that
// or an error; sections of any bytes under checksums that fit: whatever comes out, nothing is read
// outside a file.
#include "column_files.hpp"

namespace {

struct Found {
  uint32_t query;
  uint64_t value;
  uint32_t distance;
  bool operator==(const Found& o) const {
    return query == o.query && value == o.value && distance == o.distance;
  }
  bool operator<(const Found& o) const {
    return std::pair(query, value) < std::pair(o.query, o.value);
  }
};

std::pmr::vector<Found> brute(const Case& c) {
  std::pmr::vector<Found> found;
  for (uint32_t q = 0; q * c.words < c.queries.size(); ++q)
    for (size_t f = 0; f < c.count(); ++f) {
      unsigned distance = 0;
      for (unsigned w = 0; w < c.words; ++w)
        distance += static_cast<unsigned>(
            __builtin_popcountll(c.queries[q * c.words + w] ^ c.set[f * c.words + w]));
      if (distance <= c.radius) found.push_back({q, c.wide() ? f : c.set[f], distance});
    }
  std::sort(found.begin(), found.end());
  return found;
}

// The matches of a sink, whose rows name(row) makes numbers.
template <class Row = uint64_t, class Name>
std::pmr::vector<Found> taken(Sink* sink, const Name& name) {
  std::pmr::vector<Found> found;
  for (uint64_t i = 0; i < sink->count; ++i) {
    const Match<Row>& match = matches<Row>(*sink)[i];
    found.push_back({match.query, name(match.fingerprint), match.distance});
  }
  release(sink);
  std::sort(found.begin(), found.end());
  return found;
}

// Asks everything. With sure, it must be right; otherwise right or an error, and of forged files
// anything.
void ask(const Case& c, bool sure, bool forged) {
  const Queries queries{c.queries.data(), c.queries.size() / c.words};
  const auto right = brute(c);
  Fault fault;
  Sink sink;
  const auto settle = [&](Status status, const std::pmr::vector<Found>& found) {
    REQUIRE(status == Status::ok || !sure);
    if (status == Status::ok && !forged) REQUIRE(found == right);
  };
  const auto itself = [](uint64_t row) { return row; };
  const auto number = [&](const auto& row) {
    for (uint64_t i = 0; i < c.count(); ++i)
      if (!memcmp(&row, c.set.data() + c.words * i, sizeof row)) return i;
    return UINT64_MAX;
  };
  for (const bool balance : {false, true}) {
    ColumnCounters counters;
    const ColumnProbe probe = column_kernels().probe[c.words / 2];
    const Status status = probe(c.whole(), queries, {c.radius, c.thresholds, balance, nullptr},
                                &sink, &counters, &fault);
    settle(status, taken(&sink, itself));
    REQUIRE(fault.table <= c.tables);
  }
  const ColumnView& first = c.wide() ? c.rows.view : c.files[0].view;
  Status status = scan_entries(first, {0, first.count}, queries, {c.radius}, &sink, &fault);
  settle(status, c.words == 1   ? taken(&sink, itself)
                 : c.words == 2 ? taken<Wide<2>>(&sink, number)
                                : taken<Wide<4>>(&sink, number));
  WordVector places(c.count());
  status = locate_entries(first, {c.set.data(), c.count()}, places.data(), nullptr, &fault);
  REQUIRE(status == Status::ok || !sure);
  for (size_t i = 0; status == Status::ok && !forged && i < places.size(); ++i)
    REQUIRE(places[i] < c.count() && (!c.wide() || places[i] == i));
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<const Kernels*>* const all =
      new std::vector<const Kernels*>(fuzz::all_kernels(64));
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
    for (unsigned i = 0; i < c.tables; ++i)  // a forged header may say anything that a ring cannot
                                             // have; its files are not opened together
      if (c.files[i].view.words != c.words || c.files[i].header.bucket_bits != c.bucket_bits)
        return 0;
    if (c.wide() && c.rows.view.words != c.words) return 0;
    ask(c, harm < 2, harm == 3);
  }
  return 0;
}
