// Records of ids and of logs, and streaming merges of what they hold: checks of what Python hands
// over, one call without the GIL, arrays out.
#include "build/id_packer.hpp"
#include "build/merge.hpp"
#include "format/idpack.hpp"
#include "format/log.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

// Writes the records of the blocks that are complete with some more rows.
void feed(IdPacker& packer, Rows keys, Words counts, Words ids, Counts block_counts) {
  const unsigned words = packer.file().key_words();
  need_words(keys, words);
  need(counts.size() == count_of(keys), kUnequal);
  const uint64_t* const refused = call([&] {
    uint64_t entries = 0, id_count = 0;
    for (const uint32_t count : span_of(block_counts)) {
      need(count >= 1 && count <= kMaxEntries, "a block has 1 to 32768 entries");
      entries += count;
    }
    for (const uint64_t count : span_of(counts)) {
      need(count >= 1 && count <= ids.size(), "every fingerprint needs an id");
      id_count += count;
    }
    need(entries <= packer.buffered_rows() + counts.size() && id_count == ids.size(),
         "keys, ids and block counts disagree");
    return packer.feed(
        {{keys.data(), count_of(keys), words}, counts.data(), ids.data(), ids.size()},
        block_counts.data(), block_counts.size());
  });
  if (refused) raise_disorder(packer.file().last_key(), refused, words);
}

IdRecord record_of(const nb::bytes& data, uint64_t seed, const std::string& path) {
  IdRecord record;
  Fault fault;
  check(open_record(data_of(data), data.size(), seed, &record, &fault), fault, {path});
  return record;
}

// The ids of one rank of a record.
nb::list unpack_rank(nb::bytes data, uint64_t seed, uint32_t rank, const std::string& path) {
  const IdRecord record = record_of(data, seed, path);
  if (rank >= record.count)
    throw FileFault{{Status::bad_record, UINT64_MAX, rank, record.count}, {path}};
  uint64_t first;
  const uint64_t n = ids_of_rank(record, rank, &first);
  nb::list out;
  for (uint64_t i = 0; i < n; ++i) out.append(id_at(record, first + i));
  return out;
}

// (lims, ids) of many places: ids of rank ranks[i] in records[record[i]], which has the key
// keys[record[i]].
nb::tuple gather_ids(nb::list records, Words keys, Words record, Counts ranks, uint64_t seed,
                     const std::string& path) {
  const size_t n = record.size();
  need(ranks.size() == n && keys.size() == nb::len(records), kUnequal);
  std::vector<IdRecord> opened(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    opened[i] = record_of(nb::cast<nb::bytes>(records[i]), seed + keys.data()[i],
                          path);  // records keeps the bytes alive
  Buffer<int64_t> lims(n + 1);
  int64_t* const l = lims.get();
  std::vector<uint64_t> firsts(n);
  l[0] = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t place = record.data()[i];
    if (place >= opened.size()) throw nb::index_error("no such record");
    const uint32_t rank = ranks.data()[i];
    if (rank >= opened[place].count)
      throw FileFault{{Status::bad_record, UINT64_MAX, rank, opened[place].count}, {path}};
    l[i + 1] = l[i] + static_cast<int64_t>(ids_of_rank(opened[place], rank, &firsts[i]));
  }
  const size_t total = static_cast<size_t>(l[n]);
  Buffer<uint64_t> ids(total);
  call([&] {
    for (size_t i = 0; i < n; ++i)
      for (int64_t j = l[i]; j < l[i + 1]; ++j)
        ids.get()[j] = id_at(opened[record.data()[i]], firsts[i] + static_cast<uint64_t>(j - l[i]));
  });
  return nb::make_tuple(lims.array(n + 1), ids.array(total));
}

// The records of a list, kept alive while they are read without the GIL, and opened.
struct Records {
  std::vector<nb::bytes> kept;
  std::vector<RecordBytes> bytes;
  std::vector<IdRecord> opened;

  Records(const nb::list& records, size_t keys) {
    need(nb::len(records) == keys, kUnequal);
    for (nb::handle record : records) {
      if (!nb::isinstance<nb::bytes>(record)) throw nb::type_error("records are bytes");
      const nb::bytes& data = kept.emplace_back(nb::borrow<nb::bytes>(record));
      bytes.push_back(RecordBytes{data_of(data), data.size()});
    }
  }
};

template <class Some>
Keys keys_of(const Some& keys) {
  return Keys{keys.data(), count_of(keys), words_in(keys)};
}

template <class Some>
Keys checked(const Some& keys) {
  const Keys out = keys_of(keys);
  need(strictly_ascending(out), "keys must ascend");
  return out;
}

Groups checked(const Rows& keys, const Words& counts, const Words& ids) {
  need(counts.size() == count_of(keys), kUnequal);
  const Groups groups{keys_of(keys), counts.data(), ids.data(), ids.size()};
  const char* const fault = fault_of(groups);
  need(!fault, fault);
  return groups;
}

// Columns with room for two sets of groups.
struct GroupColumns {
  unsigned words;
  Buffer<uint64_t> keys, counts, ids;
  GroupsOut out;

  GroupColumns(const Rows& a, const Rows& b, size_t id_count)
      : words(words_in(a)),
        keys(a.size() + b.size()),
        counts(count_of(a) + count_of(b)),
        ids(id_count),
        out{keys.get(), counts.get(), ids.get()} {
    need_words(b, words);
  }
  nb::tuple arrays() {
    return nb::make_tuple(keys.array(out.n, words), counts.array(out.n), ids.array(out.id_count));
  }
};

// (counts, ids) of the records of successive blocks with these keys; seed is that of key 0.
nb::tuple unpack_records(nb::list records, uint64_t first_block, Words keys, uint64_t seed,
                         const std::string& path) {
  Records r(records, keys.size());
  std::optional<Buffer<uint64_t>> counts, ids;
  size_t count = 0, total = 0;
  call(File{path}, [&](Fault* fault) {
    FPSTORE_TRY(open_records(r.bytes, first_block, keys.data(), seed, &r.opened, fault));
    for (const IdRecord& record : r.opened) {
      count += record.count;
      total += record.total;
    }
    counts.emplace(count);
    ids.emplace(total);
    uint64_t *c = counts->get(), *i = ids->get();
    for (const IdRecord& record : r.opened) {
      unpack_counts(record, c);
      unpack_ids(record, i);
      c += record.count;
      i += record.total;
    }
    return Status::ok;
  });
  return nb::make_tuple(counts->array(count), ids->array(total));
}

// (blocks, ranks, ids) of every place whose id is wanted.
nb::tuple find_wanted(nb::list records, uint64_t first_block, Words keys, uint64_t seed,
                      Words wanted, const std::string& path) {
  Records r(records, keys.size());
  std::vector<Place> found;
  call(File{path}, [&](Fault* fault) {
    const Keys sorted = checked(wanted);
    FPSTORE_TRY(open_records(r.bytes, first_block, keys.data(), seed, &r.opened, fault));
    found = find_ids(r.opened, first_block, sorted.keys, sorted.n);
    return Status::ok;
  });
  Buffer<uint64_t> blocks(found.size()), ids(found.size());
  Buffer<uint32_t> ranks(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    blocks.get()[i] = found[i].block;
    ranks.get()[i] = found[i].rank;
    ids.get()[i] = found[i].id;
  }
  return nb::make_tuple(blocks.array(found.size()), ranks.array(found.size()),
                        ids.array(found.size()));
}

// Writes (keys without drop) and add to out, which has room for keys and add; returns how many.
size_t merge(Rows keys, Rows drop, Rows add, MutableRows out) {
  for (const Rows& other : {drop, add}) need_words(other, words_in(keys));
  need_words(out, words_in(keys));
  need(out.size() >= keys.size() + add.size(), "out is too short");
  for (const Rows& in : {keys, drop, add})
    need(!in.size() || in.data() >= out.data() + out.size() || out.data() >= in.data() + in.size(),
         "out lies over an input");
  return call([&] { return merge_keys(checked(keys), checked(drop), checked(add), out.data()); });
}

nb::tuple merge_with_ids(Rows keys, Words counts, Words ids, Rows drop, Rows add, Words add_counts,
                         Words add_ids) {
  GroupColumns columns(keys, add, ids.size() + add_ids.size());
  need_words(drop, columns.words);
  call([&] {
    need(merge_groups(checked(keys, counts, ids), checked(drop), checked(add, add_counts, add_ids),
                      &columns.out),
         "a key to add is among those kept");
  });
  return columns.arrays();
}

nb::tuple union_with_ids(Rows keys_a, Words counts_a, Words ids_a, Rows keys_b, Words counts_b,
                         Words ids_b) {
  GroupColumns columns(keys_a, keys_b, ids_a.size() + ids_b.size());
  call([&] {
    need(union_groups(checked(keys_a, counts_a, ids_a), checked(keys_b, counts_b, ids_b),
                      &columns.out),
         "the ids of a key must ascend");
  });
  return columns.arrays();
}

// The whole records at the start of bytes of a log, as columns: at most `most`, the first with this
// number, of fingerprints of `words` words (0: any). (records, bytes, number, durable,
// (fingerprints, ids, next row, kind of ids), kinds, fingerprints, ids, lims of strings, strings)
nb::tuple read_log(Bytes data, uint64_t place, uint64_t seed, uint64_t number, uint64_t words,
                   uint64_t most) {
  LogRecords measured;
  std::optional<Buffer<uint8_t>> kinds, strings;
  std::optional<Buffer<uint64_t>> fingerprints, ids, lims;
  call([&] {
    measured = measure_log(data.data(), data.size(), place, seed, number, words, most);
    kinds.emplace(measured.rows);
    fingerprints.emplace(measured.rows * measured.words);
    ids.emplace(measured.rows);
    lims.emplace(measured.strings + 1);
    strings.emplace(measured.string_bytes);
    copy_log(
        data.data(), measured,
        LogColumns{kinds->get(), fingerprints->get(), ids->get(), lims->get(), strings->get()});
  });
  const LogTotals& t = measured.totals;
  const nb::tuple totals = nb::make_tuple(t.fingerprints, t.ids, t.next_row, t.id_kind);
  return nb::make_tuple(measured.records, measured.bytes, measured.number, measured.durable, totals,
                        kinds->array(measured.rows),
                        fingerprints->array(measured.rows, measured.words),
                        ids->array(measured.rows), lims->array(measured.strings + 1),
                        strings->array(measured.string_bytes));
}

}  // namespace

void bind_records(nb::module_& m) {
  nb::class_<IdPacker>(m, "IdPacker")
      .def(nb::init<SealedEncoder*, uint64_t>(), nb::keep_alive<1, 2>(), "file"_a, "seed"_a)
      .def_prop_ro("buffered_rows", &IdPacker::buffered_rows)
      .def("feed", &feed, "keys"_array, "counts"_array, "ids"_array, "block_counts"_array);
  m.def("unpack_rank", &unpack_rank, "record"_a, "seed"_a, "rank"_a, "path"_a);
  m.def("gather_ids", &gather_ids, "records"_a, "keys"_array, "record"_array, "ranks"_array,
        "seed"_a, "path"_a);
  m.def("unpack_records", &unpack_records, "records"_a, "first_block"_a, "keys"_array, "seed"_a,
        "path"_a);
  m.def("find_ids", &find_wanted, "records"_a, "first_block"_a, "keys"_array, "seed"_a,
        "wanted"_array, "path"_a);
  m.def("merge_keys", &merge, "keys"_array, "drop"_array, "add"_array, "out"_array);
  m.def("merge_groups", &merge_with_ids, "keys"_array, "counts"_array, "ids"_array, "drop"_array,
        "add"_array, "add_counts"_array, "add_ids"_array);
  m.def("union_groups", &union_with_ids, "keys_a"_array, "counts_a"_array, "ids_a"_array,
        "keys_b"_array, "counts_b"_array, "ids_b"_array);
  m.def("read_log", &read_log, "data"_a, "place"_a, "seed"_a, "number"_a, "words"_a, "most"_a);
}

}  // namespace fpstore
