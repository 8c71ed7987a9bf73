// The class Delta of the module: the changes on top of the tables, shared by threads.
#include "delta/merge_matches.hpp"
#include "python/access.hpp"

namespace fpstore {
namespace {

// lims of n lists over a column of this size.
void check_lims(const Lims& lims, size_t n, size_t size) {
  need(lims.size() == n + 1 && lims.data()[0] == 0,
       "lims must have one entry more than there are lists, and start at 0");
  for (size_t i = 0; i < n; ++i) need(lims.data()[i] <= lims.data()[i + 1], "lims descend");
  need(static_cast<uint64_t>(lims.data()[n]) <= size, "lims run past the column");
}

// What work returns, which has the delta for itself and needs no GIL.
template <class Work>
auto alone(const Delta& delta, const Work& work) {
  return call([&] {
    const std::unique_lock<Gate> lock(delta.gate);
    return work();
  });
}

void check_memory(bool fine) {
  if (!fine) raise("MemoryLimitError", "out of memory for the delta: merge the store");
}

void check_applied(Applied applied) {
  check_memory(applied != Applied::out_of_memory);
  need(applied != Applied::base_changed,
       "in_base differs from what it was for the same fingerprint");
  need(applied != Applied::old_version, "a version below that of the last changes");
}

unsigned words_in_rows(const Delta& d) { return words_of(d.width()); }

std::unique_ptr<Delta> make(unsigned radius, Bytes bits) {
  const unsigned width = static_cast<unsigned>(bits.size());
  need(is_width(width), "bits has 32, 64, 128 or 256 entries");
  need(radius <= width, "the radius of a delta is 0 to the width");
  need(is_permutation(bits.data(), width), "bits is not a permutation");
  return make_delta(width, radius, bits.data());
}

// Takes up a change of one row. The GIL is kept unless there is a wait: one row is a short matter.
void apply_one(Delta& d, uint8_t kind, nb::handle fingerprint, uint64_t id, bool in_base,
               uint32_t version) {
  need(kind < 3, "kinds are 0 to 2");
  const uint8_t base = in_base;
  const OneRow row(fingerprint, words_in_rows(d));
  if (!d.gate.try_lock()) call([&] { d.gate.lock(); });
  std::unique_lock<Gate> access(d.gate, std::adopt_lock);
  const Applied applied = d.apply(Changes{&kind, row.words, &id, &base, 1}, version);
  access.unlock();
  check_applied(applied);
}

void apply_changes(Delta& d, Bytes kinds, Rows fingerprints, Words ids, Bytes in_base,
                   uint32_t version) {
  const size_t n = kinds.size();
  need_words(fingerprints, words_in_rows(d));
  need(count_of(fingerprints) == n && ids.size() == n && in_base.size() == n, kUnequal);
  for (size_t i = 0; i < n; ++i) need(kinds.data()[i] < 3, "kinds are 0 to 2");
  const auto change = [&] {
    return d.apply(Changes{kinds.data(), fingerprints.data(), ids.data(), in_base.data(), n},
                   version);
  };
  check_applied(alone(d, change));
}

void load(Delta& d, uint64_t changes) {
  check_memory(alone(d, [&] {
    need(!d.entries() || d.is_loading(), "the delta has changes already");
    return d.load(changes);
  }));
}

// The gate is kept, as nobody else has a delta that is loading.
void index(Delta& d) {
  Stopper stopping = stopper(nullptr);
  check_memory(alone(d, [&] {
    return d.index([&](uint64_t work) {
      if (should_stop(&stopping, work)) throw Interrupted();
    });
  }));
}

void check_queries(const Delta& d, size_t n, unsigned radius) {
  need(!d.is_loading(), "the delta is loading: index it first");
  need(n <= UINT32_MAX, "at most 2^32 - 1 queries a call");
  need(radius <= d.width(), "radius is 0 to the width");
}

void check_queries(const Delta& d, const Rows& queries, unsigned radius) {
  need_words(queries, words_in_rows(d));
  check_queries(d, count_of(queries), radius);
}

// The matches of queries, which search(sink, pauses) finds without the GIL; false when memory runs
// out.
template <class Search>
OrderedMatches found_by(const Delta& d, const Rows& queries, const Stop* stop,
                        const Search& search) {
  SinkGuard guard;
  std::optional<OrderedMatches> out;
  read(d, stop, [&](Access& access) {
    const bool fine = search(&guard.sink, access.pauses());
    access.leave();
    if (fine)
      out.emplace(guard.sink, d.width(), words_in_rows(d), count_of(queries), 1, &access.stopping);
  });
  check_memory(out.has_value());
  return std::move(*out);
}

nb::tuple probe(const Delta& d, Rows queries, unsigned radius, uint32_t version, const Stop* stop) {
  check_queries(d, queries, radius);
  return found_by(d, queries, stop,
                  [&](Sink* sink, const Pause& pause) {
                    return d.probe(queries.data(), count_of(queries), radius, d.end_of(version),
                                   sink, pause);
                  })
      .columns();
}

nb::tuple share(const Delta& d, Rows queries, unsigned bits, uint32_t version, const Stop* stop) {
  check_queries(d, queries, 0);
  need(bits <= 64 && bits <= d.width(), "bits is at most 64, and the width");
  return found_by(d, queries, stop,
                  [&](Sink* sink, const Pause& pause) {
                    return d.share(queries.data(), count_of(queries), bits, d.end_of(version), sink,
                                   pause);
                  })
      .columns();
}

nb::list probe_one(const Delta& d, nb::handle query, unsigned radius, uint32_t version) {
  check_queries(d, 1, radius);
  const unsigned words = words_in_rows(d);
  const OneRow row(query, words);
  SinkGuard guard;
  bool fine;
  {
    Access access(d, Access::Gil::kept);
    fine = d.probe(row.words, 1, radius, d.end_of(version), &guard.sink, access.pauses());
  }
  check_memory(fine);
  nb::list out;
  if (!guard.sink.count) return out;
  Stopper stopping = stopper(nullptr);
  OrderedMatches found(guard.sink, d.width(), words, 1, 1, &stopping);
  for (size_t i = 0; i < found.count; ++i) {
    if (should_stop(&stopping, kBlockWork)) throw Interrupted();
    out.append(
        nb::make_tuple(number_of(found.fingerprints.get() + i * words, words), found.distance(i)));
  }
  return out;
}

nb::tuple scan(const Delta& d, Rows queries, unsigned radius, uint32_t version) {
  check_queries(d, queries, radius);
  return found_by(d, queries, nullptr,
                  [&](Sink* sink, const Pause& pause) {
                    return d.scan(queries.data(), count_of(queries), radius, d.end_of(version),
                                  sink, pause);
                  })
      .columns();
}

// The nearest matches of each query, and whether it has others within the radius.
nb::tuple nearest(const Delta& d, Rows queries, unsigned radius, uint64_t limit, uint32_t version) {
  check_queries(d, queries, radius);
  need(limit > 0, "limit is at least 1");
  NearestGuard kept;
  return found_by(d, queries, nullptr,
                  [&](Sink* sink, const Pause& pause) {
                    return start_nearest(&kept.nearest, words_in_rows(d), count_of(queries), limit,
                                         radius) &&
                           d.nearest(queries.data(), count_of(queries), radius, d.end_of(version),
                                     &kept.nearest, pause) &&
                           hand_over(&kept.nearest, sink);
                  })
      .columns(kept.nearest);
}

// What the delta says of each fingerprint, or of each pair of one and an id: 0 nothing, 1 present,
// 2 absent.
nb::object states_of(const Delta& d, const Rows& fingerprints, const Words* ids, uint32_t version) {
  need_words(fingerprints, words_in_rows(d));
  const size_t n = count_of(fingerprints);
  need(!ids || ids->size() == n, kUnequal);
  Buffer<uint8_t> out(n);
  read(d, nullptr, [&](Access& access) {
    const uint32_t end = d.end_of(version);
    if (ids)
      d.pair_states(fingerprints.data(), ids->data(), n, end, out.get(), access.pauses());
    else
      d.states(fingerprints.data(), n, end, out.get(), access.pauses());
  });
  return out.array(n);
}
nb::object states(const Delta& d, Rows fingerprints, uint32_t version) {
  return states_of(d, fingerprints, nullptr, version);
}
nb::object pair_states(const Delta& d, Rows fingerprints, Words ids, uint32_t version) {
  return states_of(d, fingerprints, &ids, version);
}

unsigned state(const Delta& d, nb::handle fingerprint, uint32_t version) {
  const OneRow row(fingerprint, words_in_rows(d));
  uint8_t presence;
  Access access(d, Access::Gil::kept);
  d.states(row.words, 1, d.end_of(version), &presence, [](uint64_t) {});
  return presence;
}

// The matches of the tables or of the delta: (lims, fingerprints, distances).
template <class Row, class Distance>
struct MatchArrays {
  Lims lims;
  Rows rows;
  Array<const Distance> distances;

  MatchArrays(const nb::tuple& from, unsigned words)
      : lims(nb::cast<Lims>(from[0])),
        rows(nb::cast<Rows>(from[1])),
        distances(nb::cast<Array<const Distance>>(from[2])) {
    need_words(rows, words);
  }
  size_t count() const { return count_of(rows); }
  void check(size_t n) const { check_lims(lims, n, std::min(count(), distances.size())); }
  MatchColumns<Row, Distance> columns() const {
    return {lims.data(), fpstore::rows<Row>(rows.data()), distances.data()};
  }
};

template <class Row, class Distance>
nb::tuple combine_rows(const Delta& d, const nb::tuple& base, const nb::tuple& found,
                       uint32_t version) {
  const unsigned words = words_in_rows(d);
  const MatchArrays<Row, Distance> tables(base, words), added(found, words);
  const size_t n = added.lims.size() ? added.lims.size() - 1 : 0,
               total = tables.count() + added.count();
  tables.check(n);
  added.check(n);
  Buffer<int64_t> lims(n + 1);
  Buffer<uint64_t> fingerprints(total * words);
  Buffer<Distance> distances(total);
  std::vector<uint8_t> presence(tables.count());
  const int64_t kept = read(d, nullptr, [&](Access& access) {
    if (d.removals())
      d.states(tables.rows.data(), presence.size(), d.end_of(version), presence.data(),
               access.pauses());
    access.leave();
    return merge_matches(tables.columns(), presence.data(), added.columns(), n, lims.get(),
                         rows<Row>(fingerprints.get()), distances.get());
  });
  const size_t count = static_cast<size_t>(kept);
  return nb::make_tuple(lims.array(n + 1), fingerprints.array(count, words),
                        distances.array(count));
}

nb::tuple combine(const Delta& d, nb::tuple base, nb::tuple found, uint32_t version) {
  need(base.size() >= 3 && found.size() >= 3, "lims, fingerprints and distances are wanted");
  return with_row(words_in_rows(d), [&](auto row) {
    using Distance = std::conditional_t<sizeof row == 32, uint16_t, uint8_t>;
    return combine_rows<decltype(row), Distance>(d, base, found, version);
  });
}

nb::tuple ids(const Delta& d, Rows fingerprints, Lims lims, Words base_ids, uint32_t version) {
  const unsigned words = words_in_rows(d);
  need_words(fingerprints, words);
  const size_t n = count_of(fingerprints);
  check_lims(lims, n, base_ids.size());
  Buffer<int64_t> out_lims(n + 1);
  std::vector<uint64_t> out;
  out_lims.get()[0] = 0;
  read(d, nullptr, [&](Access& access) {
    const uint32_t end = d.end_of(version);
    for (size_t i = 0; i < n; ++i) {
      access.pause(kBlockWork);
      const int64_t first = lims.data()[i];
      d.ids(fingerprints.data() + i * words, base_ids.data() + first,
            static_cast<size_t>(lims.data()[i + 1] - first), end, &out);
      out_lims.get()[i + 1] = static_cast<int64_t>(out.size());
    }
  });
  return nb::make_tuple(out_lims.array(n + 1), array_of(out));
}

std::vector<uint64_t> ids_one(const Delta& d, nb::handle fingerprint,
                              std::vector<uint64_t> base_ids, uint32_t version) {
  const OneRow row(fingerprint, words_in_rows(d));
  std::vector<uint64_t> out;
  Access access(d, Access::Gil::kept);
  d.ids(row.words, base_ids.data(), base_ids.size(), d.end_of(version), &out);
  return out;
}

void need_id_index(Delta& d) {
  bool indexed;
  {
    Access access(d, Access::Gil::kept);
    indexed = d.has_id_index();
  }
  check_memory(indexed || alone(d, [&] { return d.index_ids(); }));
}

nb::tuple find(Delta& d, Words ids, uint32_t version) {
  need_id_index(d);
  const IdPairs found = read(d, nullptr, [&](Access& access) {
    return d.find(ids.data(), ids.size(), d.end_of(version), access.pauses());
  });
  return nb::make_tuple(array_of(found.fingerprints, words_in_rows(d)), array_of(found.ids));
}

// Of the rows that were taken, which are fewer than all when those were a good deal of work: the
// caller goes on with the others.
nb::tuple probe_insert(Delta& d, Rows queries, Words ids, Bytes matched, Bytes in_base,
                       unsigned radius, bool always, uint32_t version) {
  size_t n = count_of(queries);
  check_queries(d, queries, radius);
  need(ids.size() == n && matched.size() == n && in_base.size() == n, kUnequal);
  for (size_t i = 0; i < n; ++i) need(matched.data()[i] < 3, "matched is 0 to 2");
  SinkGuard guard;
  Buffer<uint8_t> inserted(n);
  std::optional<OrderedMatches> out;
  const ConditionalInserts rows{queries.data(), ids.data(), matched.data(),
                                in_base.data(), radius,     always};
  const auto deliver = [&] { out.emplace(guard.sink, d.width(), words_in_rows(d), n, 1, nullptr); };
  check_applied(alone(
      d, [&] { return d.probe_insert(rows, &n, version, &guard.sink, inserted.get(), deliver); }));
  const nb::tuple columns = out->columns();
  return nb::make_tuple(columns[0], columns[1], columns[2], inserted.array(n));
}

// (fingerprints, in_base, lims, ids) of the fingerprints with changes, ascending; those in the
// tables have no ids here.
nb::tuple export_state(const Delta& d, uint32_t version) {
  Export e;
  read(d, nullptr, [&](Access& access) { d.export_state(d.end_of(version), &e, access.pauses()); });
  return nb::make_tuple(array_of(e.fingerprints, words_in_rows(d)), array_of(e.in_base),
                        array_of(e.lims), array_of(e.ids));
}

template <uint64_t (Delta::*Get)() const>
uint64_t number(const Delta& d) {
  Access access(d, Access::Gil::kept);
  return (d.*Get)();
}

}  // namespace

void bind_delta(nb::module_& m) {
  nb::class_<Delta>(m, "Delta")
      .def(nb::new_(&make), "radius"_a, "bits"_array)
      .def_prop_ro("width", [](const Delta& d) { return d.width(); })
      .def("load", &load, "changes"_a)
      .def("index", &index)
      .def("apply_one", &apply_one, "kind"_a, "fingerprint"_a, "number"_a, "in_base"_a, "version"_a)
      .def("apply", &apply_changes, "kinds"_array, "fingerprints"_array, "ids"_array,
           "in_base"_array, "version"_a)
      .def("probe", &probe, "queries"_array, "radius"_a, "version"_a, optional_stop())
      .def("probe_one", &probe_one, "query"_a, "radius"_a, "version"_a)
      .def("share", &share, "queries"_array, "bits"_a, "version"_a, optional_stop())
      .def("scan", &scan, "queries"_array, "radius"_a, "version"_a)
      .def("nearest", &nearest, "queries"_array, "radius"_a, "limit"_a, "version"_a)
      .def("states", &states, "fingerprints"_array, "version"_a)
      .def("state", &state, "fingerprint"_a, "version"_a)
      .def("combine", &combine, "base"_a, "found"_a, "version"_a)
      .def("ids", &ids, "fingerprints"_array, "lims"_array, "base_ids"_array, "version"_a)
      .def("ids_one", &ids_one, "fingerprint"_a, "base_ids"_a, "version"_a)
      .def("pair_states", &pair_states, "fingerprints"_array, "ids"_array, "version"_a)
      .def("find", &find, "ids"_array, "version"_a)
      .def("probe_insert", &probe_insert, "queries"_array, "ids"_array, "matched"_array,
           "in_base"_array, "radius"_a, "always"_a, "version"_a)
      .def("export", &export_state, "version"_a)
      .def_prop_ro("entries", &number<&Delta::entries>)
      .def_prop_ro("operations", &number<&Delta::operations>)
      .def_prop_ro("memory_bytes", &number<&Delta::bytes>)
      .def_prop_ro("removals", &number<&Delta::removals>);
}

}  // namespace fpstore
