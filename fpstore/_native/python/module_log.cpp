// The function that reads logs: checks of what Python hands over, one call without the GIL, arrays out.
#include "format/log.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

// (records, bytes, number, durable, (fingerprints, ids, next row, kind of ids), kinds, fingerprints, ids, lims of strings, strings)
nb::tuple read_log(Bytes data, uint64_t place, uint64_t seed, uint64_t number, uint64_t words, uint64_t most) {
  LogRecords measured;
  std::optional<Buffer<uint8_t>> kinds, strings;
  std::optional<Buffer<uint64_t>> fingerprints, ids, lims;
  {
    ReleasedGil released;
    measured = measure_log(data.data(), data.size(), place, seed, number, words, most);
    kinds.emplace(measured.rows);
    fingerprints.emplace(measured.rows * measured.words);
    ids.emplace(measured.rows);
    lims.emplace(measured.strings + 1);
    strings.emplace(measured.string_bytes);
    copy_log(data.data(), measured,
             LogColumns{kinds->get(), fingerprints->get(), ids->get(), lims->get(), strings->get()});
  }
  const LogTotals& t = measured.totals;
  return nb::make_tuple(measured.records, measured.bytes, measured.number, measured.durable,
                        nb::make_tuple(t.fingerprints, t.ids, t.next_row, t.id_kind), kinds->array(measured.rows),
                        fingerprints->array(measured.rows, static_cast<unsigned>(measured.words)), ids->array(measured.rows), lims->array(measured.strings + 1),
                        strings->array(measured.string_bytes));
}

}  // namespace

void bind_log(nb::module_& m) {
  m.def("read_log", &read_log, "data"_a, "place"_a, "seed"_a, "number"_a, "words"_a, "most"_a,
        "Return the whole records at the start of bytes of a log, as columns: at most so many, the first with this number, of fingerprints of so many words (0: any).");
}

}  // namespace fpstore
