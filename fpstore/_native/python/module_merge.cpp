// The functions of streaming merges: checks of what Python hands over, one call without the GIL, arrays out.
#include "build/merge.hpp"
#include "python/module.hpp"

namespace fpstore {
namespace {

// The records of a list, kept alive while they are read without the GIL, and opened.
struct Records {
  std::vector<nb::bytes> kept;
  std::vector<RecordBytes> bytes;
  std::vector<IdRecord> opened;

  Records(const nb::list& records, size_t keys) {
    if (nb::len(records) != keys) throw nb::value_error("columns of different lengths");
    for (nb::handle record : records) {
      if (!nb::isinstance<nb::bytes>(record)) throw nb::type_error("records are bytes");
      const nb::bytes& data = kept.emplace_back(nb::borrow<nb::bytes>(record));
      bytes.push_back(RecordBytes{reinterpret_cast<const uint8_t*>(data.c_str()), data.size()});
    }
  }
};

template <class Array>
Keys keys_of(const Array& keys) {
  return Keys{keys.data(), count_of(keys), words_in(keys)};
}

template <class Array>
Keys checked(const Array& keys) {
  const Keys out = keys_of(keys);
  if (!strictly_ascending(out)) throw nb::value_error("keys must ascend");
  return out;
}

Groups checked(const Rows& keys, const Words& counts, const Words& ids) {
  if (counts.size() != count_of(keys)) throw nb::value_error("columns of different lengths");
  const Groups groups{keys_of(keys), counts.data(), ids.data(), ids.size()};
  if (const char* fault = fault_of(groups)) throw nb::value_error(fault);
  return groups;
}

// Columns with room for two sets of groups.
struct GroupColumns {
  unsigned words;
  Buffer<uint64_t> keys, counts, ids;
  GroupsOut out;

  GroupColumns(const Rows& a, const Rows& b, size_t id_count)
      : words(words_in(a)), keys(a.size() + b.size()), counts(count_of(a) + count_of(b)), ids(id_count),
        out{keys.get(), counts.get(), ids.get()} {
    need_words(b, words);
  }
  nb::tuple arrays() { return nb::make_tuple(keys.array(out.n, words), counts.array(out.n), ids.array(out.id_count)); }
};

// (counts, ids) of the records of successive blocks with these keys; seed is that of key 0.
nb::tuple unpack_records(nb::list records, uint64_t first_block, Words keys, uint64_t seed, const std::string& path) {
  Records r(records, keys.size());
  Fault fault;
  Status status;
  std::optional<Buffer<uint64_t>> counts, ids;
  size_t count = 0, total = 0;
  {
    ReleasedGil released;
    status = open_records(r.bytes, first_block, keys.data(), seed, &r.opened, &fault);
    if (status == Status::ok) {
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
    }
  }
  check(status, fault, path);
  return nb::make_tuple(counts->array(count), ids->array(total));
}

// (blocks, ranks, ids) of every place whose id is wanted.
nb::tuple find_wanted(nb::list records, uint64_t first_block, Words keys, uint64_t seed, Words wanted, const std::string& path) {
  Records r(records, keys.size());
  Fault fault;
  Status status;
  std::vector<Place> found;
  {
    ReleasedGil released;
    const Keys sorted = checked(wanted);
    status = open_records(r.bytes, first_block, keys.data(), seed, &r.opened, &fault);
    if (status == Status::ok) found = find_ids(r.opened, first_block, sorted.keys, sorted.n);
  }
  check(status, fault, path);
  Buffer<uint64_t> blocks(found.size()), ids(found.size());
  Buffer<uint32_t> ranks(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    blocks.get()[i] = found[i].block;
    ranks.get()[i] = found[i].rank;
    ids.get()[i] = found[i].id;
  }
  return nb::make_tuple(blocks.array(found.size()), ranks.array(found.size()), ids.array(found.size()));
}

// Writes (keys without drop) and add to out, which has room for keys and add; returns how many.
size_t merge(Rows keys, Rows drop, Rows add, MutableRows out) {
  for (const Rows& other : {drop, add}) need_words(other, words_in(keys));
  need_words(out, words_in(keys));
  if (out.size() < keys.size() + add.size()) throw nb::value_error("out is too short");
  for (const Rows& in : {keys, drop, add})
    if (in.size() && in.data() < out.data() + out.size() && out.data() < in.data() + in.size())
      throw nb::value_error("out lies over an input");
  ReleasedGil released;
  return merge_keys(checked(keys), checked(drop), checked(add), out.data());
}

nb::tuple merge_with_ids(Rows keys, Words counts, Words ids, Rows drop, Rows add, Words add_counts, Words add_ids) {
  GroupColumns columns(keys, add, ids.size() + add_ids.size());
  need_words(drop, columns.words);
  {
    ReleasedGil released;
    if (!merge_groups(checked(keys, counts, ids), checked(drop), checked(add, add_counts, add_ids), &columns.out))
      throw nb::value_error("a key to add is among those kept");
  }
  return columns.arrays();
}

nb::tuple union_with_ids(Rows keys_a, Words counts_a, Words ids_a, Rows keys_b, Words counts_b, Words ids_b) {
  GroupColumns columns(keys_a, keys_b, ids_a.size() + ids_b.size());
  {
    ReleasedGil released;
    if (!union_groups(checked(keys_a, counts_a, ids_a), checked(keys_b, counts_b, ids_b), &columns.out))
      throw nb::value_error("the ids of a key must ascend");
  }
  return columns.arrays();
}

}  // namespace

void bind_merge(nb::module_& m) {
  m.def("unpack_records", &unpack_records, "records"_a, "first_block"_a, nb::arg("keys").noconvert(), "seed"_a, "path"_a);
  m.def("find_ids", &find_wanted, "records"_a, "first_block"_a, nb::arg("keys").noconvert(), "seed"_a,
        nb::arg("wanted").noconvert(), "path"_a);
  m.def("merge_keys", &merge, nb::arg("keys").noconvert(), nb::arg("drop").noconvert(), nb::arg("add").noconvert(),
        nb::arg("out").noconvert());
  m.def("merge_groups", &merge_with_ids, nb::arg("keys").noconvert(), nb::arg("counts").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("drop").noconvert(), nb::arg("add").noconvert(), nb::arg("add_counts").noconvert(), nb::arg("add_ids").noconvert());
  m.def("union_groups", &union_with_ids, nb::arg("keys_a").noconvert(), nb::arg("counts_a").noconvert(),
        nb::arg("ids_a").noconvert(), nb::arg("keys_b").noconvert(), nb::arg("counts_b").noconvert(),
        nb::arg("ids_b").noconvert());
}

}  // namespace fpstore
