// Column tables and row files: mapped, read in parts, and probing those of a design.
#include "columns/column_table.hpp"
#include "python/tables.hpp"

namespace fpstore {
namespace {

nb::object decode(const ColumnParts& parts, uint64_t first, Bytes tags, Bytes rests,
                  uint64_t bucket, Counts directory) {
  Buffer<uint64_t> out(tags.size() / 2);
  call(parts.file, [&](Fault* fault) {
    return parts.decode(first, span_of(tags), span_of(rests), bucket, span_of(directory), out.get(),
                        fault);
  });
  return out.array(tags.size() / 2);
}

// (lims, fingerprints, distances, (look-ups, candidates, survivors)), or None when there are more
// than most matches.
nb::object probe(const ColumnProber& prober, Rows fingerprints, unsigned radius,
                 std::optional<uint64_t> most, const Stop* stop) {
  const Queries queries = queries_of(fingerprints, prober.width());
  ColumnCounters counters;
  const auto file = [&](const Fault& fault) { return prober.file_of(fault); };
  std::optional<OrderedMatches> found =
      matches_of(file, prober.width(), 1, queries.count, 1, most, stop,
                 [&](Sink* sink, Stopper* stopping, Fault* fault) {
                   return prober.search(queries, radius, stopping, sink, &counters, fault);
                 });
  if (!found) return nb::none();
  nb::object rows;
  if (const ColumnTable* const table = prober.rows()) {
    Buffer<uint64_t> out(found->count * table->words());
    call(table->file, [&](Fault* fault) {
      return table->read_rows({found->fingerprints.get(), found->count}, out.get(), fault);
    });
    rows = out.array(found->count, table->words());
  }
  const nb::tuple columns = found->columns();
  return nb::make_tuple(columns[0], rows.is_valid() ? rows : nb::object(columns[1]), columns[2],
                        nb::make_tuple(counters.lookups, counters.candidates, counters.survivors));
}

template <class Bound>
void bind_column_header(Bound& bound) {
  using T = typename Bound::Type;
  using H = ColumnHeader;
  bind_header<H>(bound);
  bind_fields(bound, "bucket_bits", &H::bucket_bits, "tag_bits", &H::tag_bits, "rest_bits",
              &H::rest_bits, "count", &H::count, "fingerprint_count", &H::count, "directory_offset",
              &H::directory_offset, "tags_offset", &H::tags_offset, "rest_offset", &H::rest_offset,
              "checksums_offset", &H::checksums_offset, "seed", &H::checksum);
  bound.def_prop_ro("kind", [](const T& t) { return static_cast<unsigned>(t.header.kind); })
      .def_prop_ro("threshold", [](const T& t) { return t.header.allowance - 1; })
      .def_prop_ro("block_count", [](const T& t) { return id_blocks(t.header); });
}

}  // namespace

void bind_columns(nb::module_& m) {
  nb::class_<ColumnTable, AnyTable> table(m, "ColumnTable");
  bind_open(table);
  bind_column_header(table);
  nb::class_<ColumnParts> parts(m, "ColumnParts");
  parts
      .def(
          "__init__",
          [](ColumnParts* self, Bytes start, uint64_t file_bytes, std::string path) {
            new (self) ColumnParts(span_of(start), file_bytes, std::move(path));
          },
          "header"_a, "file_bytes"_a, "path"_a)
      .def("decode", &decode, "first"_a, "tags"_a, "rests"_a, "bucket"_a, "directory"_a);
  bind_column_header(parts);
  // The tables are a tuple, which keeps them alive.
  nb::class_<ColumnProber, AnyProber>(m, "ColumnProber")
      .def(
          "__init__",
          [](ColumnProber* self, nb::tuple tables, const ColumnTable* rows,
             const std::optional<std::vector<int>>& thresholds) {
            new (self)
                ColumnProber(nb::cast<std::vector<const ColumnTable*>>(tables), rows, thresholds);
          },
          "tables"_a, "rows"_a.none() = nb::none(), "thresholds"_a = nb::none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("probe", &probe, "queries"_array, "radius"_a, "most"_a = nb::none(), optional_stop());
}

}  // namespace fpstore
