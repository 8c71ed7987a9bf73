// Id records: whatever the bytes, open_record stays inside them, and ids that were packed are the
// ids that are read.
#include <memory>

#include "format/idpack.hpp"
#include "format/xxh64.hpp"
#include "input.hpp"

using namespace fpstore;

namespace {

// Reads everything that an accepted record allows, and checks that the two ways of finding an
// entry's ids agree.
void read_all(const IdRecord& record) {
  uint64_t place = 0;
  for (uint32_t rank = 0; rank < record.count; ++rank) {
    const uint64_t count = count_at(record, rank);
    // Finding a rank walks over those before it: not for every rank of a long record.
    if (rank < 40 || rank + 1 == record.count) {
      uint64_t first;
      REQUIRE(ids_of_rank(record, rank, &first) == count && first == place);
    }
    place += count;
  }
  REQUIRE(place == record.total);
  // All at once gives what one by one gives, and writes no more than there is.
  const std::unique_ptr<uint64_t[]> counts(new uint64_t[record.count]),
      ids(new uint64_t[record.total]);
  unpack_counts(record, counts.get());
  unpack_ids(record, ids.get());
  for (uint32_t rank = 0; rank < record.count; ++rank)
    REQUIRE(counts[rank] == count_at(record, rank));
  for (uint64_t i = 0; i < record.total; ++i) REQUIRE(ids[i] == id_at(record, i));
}

void open_bytes(fuzz::Input input) {
  const bool seal = input.byte() & 1;
  const uint64_t seed = input.word();
  const size_t size = input.left();
  const std::unique_ptr<uint8_t[]> data(new uint8_t[size]);
  input.fill(data.get(), size);
  if (seal && size >= 4)
    store32(data.get(), static_cast<uint32_t>(xxh64(data.get() + 4, size - 4, seed)));
  IdRecord record;
  Fault fault;
  const Status status = open_record(data.get(), size, seed, &record, &fault);
  REQUIRE(fault.status == status);
  REQUIRE(status == Status::ok || status == Status::bad_record);
  if (status == Status::ok) read_all(record);
}

void pack_and_open(fuzz::Input input) {
  const uint64_t seed = input.word();
  const unsigned shift = input.byte() % 64, most = 1 + input.byte() % 16;
  const uint64_t base = input.word();
  std::vector<uint64_t> ids, lims{0};
  while (input.left()) {
    uint64_t id = base + (input.word(1 + input.byte() % 8) >> shift);
    for (unsigned n = 1 + input.byte() % most; n && (ids.size() == lims.back() || id > ids.back());
         --n) {
      ids.push_back(id);
      id += 1 + input.byte();
    }
    lims.push_back(ids.size());
  }
  const uint64_t n = lims.size() - 1;
  if (n == 0) return;
  std::vector<uint64_t> counts(lims.size() - 1);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = lims[i + 1] - lims[i];
  std::vector<uint8_t> packed;
  REQUIRE(pack_record(ids.data(), counts.data(), n, seed, &packed) == ids.size());
  const uint64_t size = packed.size();
  const std::unique_ptr<uint8_t[]> data(new uint8_t[size]);
  memcpy(data.get(), packed.data(), size);
  IdRecord record;
  Fault fault;
  REQUIRE(open_record(data.get(), size, seed, &record, &fault) == Status::ok);
  REQUIRE(record.count == n && record.total == ids.size());
  read_all(record);
  for (uint64_t i = 0; i < n; ++i)
    REQUIRE(count_at(record, static_cast<uint32_t>(i)) == lims[i + 1] - lims[i]);
  for (uint64_t i = 0; i < ids.size(); ++i) REQUIRE(id_at(record, i) == ids[i]);
  REQUIRE(open_record(data.get(), size - 1, seed, &record, &fault) == Status::bad_record);
  REQUIRE(open_record(data.get(), size, seed + 1, &record, &fault) == Status::bad_record);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  if (input.byte() & 1)
    open_bytes(input);
  else
    pack_and_open(input);
  return 0;
}
