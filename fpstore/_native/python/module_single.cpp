// The class of single probes, from the number to the matches with their ids in one call.
#include "format/idpack.hpp"
#include "format/sealed_file.hpp"
#include "python/tables.hpp"

namespace fpstore {
namespace {

// What a single probe writes to. A thread keeps it for the next one, unless it has become large.
struct Room {
  unsigned words = 0;  // of a row of the matches that the sink has room for
  Sink sink;
  FoundPlaces found_at;
  std::vector<uint64_t> fingerprints;
  std::vector<uint16_t> distances;
  std::vector<EntryPlace> places;
  std::vector<uint64_t> rows, blocks;  // of those that are to be located
  std::vector<uint32_t> ranks;
  std::vector<uint8_t> record;
  std::vector<uint64_t> ids, id_ends;  // of all matches, and where those of each end

  Room() = default;
  ~Room() { release(&sink); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
};

// Takes the room of the thread. The handler of a signal that came meanwhile may probe, too: it
// finds none, and makes its own.
class LentRoom {
 public:
  explicit LentRoom(unsigned words) : room_(std::move(kept_)) {
    if (!room_) room_ = std::make_unique<Room>();
    // Matches of another width have another size.
    if (room_->words != words) release(&room_->sink);
    room_->words = words;
    room_->sink.count = 0;
  }
  ~LentRoom() {
    const uint64_t bytes = room_->record.capacity() + room_->ids.capacity() * sizeof(uint64_t);
    if (room_->sink.capacity <= kMostKept && bytes <= kMostBytes) kept_ = std::move(room_);
  }
  LentRoom(const LentRoom&) = delete;
  LentRoom& operator=(const LentRoom&) = delete;
  Room* get() { return room_.get(); }

 private:
  static constexpr uint64_t kMostKept = 1 << 10, kMostBytes = 1 << 16;
  static thread_local std::unique_ptr<Room> kept_;
  std::unique_ptr<Room> room_;
};
thread_local std::unique_ptr<Room> LentRoom::kept_;

// There is one query: in the place of its number each match has its own meanwhile.
template <class Row>
void order_few(Room* room) {
  const uint64_t n = room->sink.count;
  Match<Row>* const found = matches<Row>(room->sink);
  for (uint64_t i = 0; i < n; ++i) found[i].query = static_cast<uint32_t>(i);
  std::sort(found, found + n, [](const Match<Row>& a, const Match<Row>& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.fingerprint < b.fingerprint;
  });
  for (uint64_t i = 0; i < n; ++i) {
    rows<Row>(room->fingerprints.data())[i] = found[i].fingerprint;
    room->distances[i] = static_cast<uint16_t>(found[i].distance);
    if (found[i].query < room->found_at.count) room->places[i] = room->found_at.of[found[i].query];
  }
}

// Makes objects of a class of Python that is a tuple or a list, as __new__ of these does.
class Maker {
 public:
  Maker(nb::object made_of, PyTypeObject* base) : type_(std::move(made_of)) {
    if (!PyType_Check(type_.ptr()) || !PyType_IsSubtype(type(), base))
      throw nb::type_error("a match is a tuple, matches are a list");
    alloc_ = reinterpret_cast<allocfunc>(PyType_GetSlot(type(), Py_tp_alloc));
  }
  nb::object make(Py_ssize_t items) const {
    nb::object made = nb::steal(alloc_(type(), items));
    if (!made.is_valid()) throw nb::python_error();
    return made;
  }

 private:
  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.ptr()); }
  nb::object type_;
  allocfunc alloc_;
};

nb::object list_of(const uint64_t* ids, uint64_t count) {
  nb::object out = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!out.is_valid()) throw nb::python_error();
  for (uint64_t i = 0; i < count; ++i) {
    PyObject* const id = PyLong_FromUnsignedLongLong(ids[i]);
    if (!id) throw nb::python_error();
    PyList_SetItem(out.ptr(), static_cast<Py_ssize_t>(i), id);
  }
  return out;
}

// Answers one query after the other.
class SingleProber {
 public:
  SingleProber(nb::object prober, nb::object identity, nb::object ids, unsigned radius,
               nb::object match_type, nb::object list_type)
      : owners_(nb::make_tuple(prober, identity, ids)),
        prober_(nb::cast<const AnyProber*>(prober)),
        identity_(nb::cast<const AnyTable*>(identity)),
        blocks_(dynamic_cast<const Table*>(identity_)),
        ids_(nb::cast<const SealedFile*>(ids)),
        radius_(radius),
        match_(std::move(match_type), &PyTuple_Type),
        list_(std::move(list_type), &PyList_Type) {
    need(words_of(prober_->width()) == words(), "tables of several widths");
    need(ids_->key_words() == words(), "ids of tables of another width");
  }

  // The matches by distance and fingerprint; None if the ids of one cannot be found in the file as
  // it should be.
  nb::object probe(nb::handle query) const {
    const OneRow row(query, words());
    LentRoom lent(found_words());
    Room* const room = lent.get();
    Fault fault;
    const std::string* path = nullptr;
    bool with_ids = true;
    ProbeCounters counters;
    Status status;
    {
      ReleasedGil released;
      status = search(row.words, room, &counters, &fault, &path);
      try {
        with_ids = status == Status::ok && find_ids(room);
      } catch (const SealedError&) {
        with_ids = false;
      }
    }
    prober_->tell_damage();
    if (status != Status::ok) raise_fault(fault, path ? *path : "", identity_->part);
    if (!with_ids) return nb::none();
    nb::object out = list_.make(0);
    for (uint64_t i = 0, first = 0; i < room->sink.count; first = room->id_ends[i++]) {
      nb::object match = match_.make(3);
      PyTuple_SetItem(match.ptr(), 0,
                      number_of(room->fingerprints.data() + i * words(), words()).release().ptr());
      PyTuple_SetItem(match.ptr(), 1, nb::int_(room->distances[i]).release().ptr());
      PyTuple_SetItem(match.ptr(), 2,
                      list_of(room->ids.data() + first, room->id_ends[i] - first).release().ptr());
      if (PyList_Append(out.ptr(), match.ptr())) throw nb::python_error();
    }
    return out;
  }

 private:
  unsigned words() const { return identity_->words(); }
  unsigned found_words() const { return prober_->finds_rows() ? 1 : words(); }

  // Finds the matches and their places in the identity table.
  Status search(const uint64_t* row, Room* room, ProbeCounters* counters, Fault* fault,
                const std::string** path) const {
    Stopper stopping = stopper(nullptr);
    ProbeOptions options{radius_};
    options.stop = &stopping;
    room->found_at.table = blocks_ ? &blocks_->view : nullptr;
    room->found_at.tell = [](const void* ids, uint64_t block) {
      static_cast<const SealedFile*>(ids)->fetch(block);
    };
    room->found_at.to = ids_;
    room->found_at.count = 0;
    options.places = &room->found_at;
    Status status = prober_->search_few({row, 1}, options, &room->sink, counters, fault);
    const uint64_t n = room->sink.count;
    if (status != Status::ok) {
      *path = &prober_->path_of(*fault);
      return status;
    }
    if (!n) return status;
    *path = &identity_->path;
    room->fingerprints.resize(n * found_words());
    room->distances.resize(n);
    room->places.assign(n, EntryPlace{UINT64_MAX, 0});
    status = order(room, &stopping);
    if (status != Status::ok) return (*fault = Fault{status}).status;
    return prober_->finds_rows() ? read_rows(room, fault) : locate(room, &stopping, fault);
  }

  // Reads the rows of the identity table whose numbers were found.
  Status read_rows(Room* room, Fault* fault) const {
    const uint64_t n = room->sink.count;
    room->blocks.resize(n);
    room->ranks.resize(n);
    for (uint64_t i = 0; i < n; ++i) {
      room->blocks[i] = room->fingerprints[i] / kRowsInBlock;
      room->ranks[i] = static_cast<uint32_t>(room->fingerprints[i] % kRowsInBlock);
      room->places[i] = {room->blocks[i], room->ranks[i]};
    }
    room->fingerprints.resize(n * words());
    return identity_->read(room->blocks.data(), room->ranks.data(), n, room->fingerprints.data(),
                           fault);
  }

  // Finds the places of the matches that were found in other tables than the identity table.
  Status locate(Room* room, Stopper* stopping, Fault* fault) const {
    room->rows.clear();
    for (uint64_t i = 0; i < room->sink.count; ++i) {
      const uint64_t* const found = room->fingerprints.data() + i * words();
      if (room->places[i].block != UINT64_MAX) continue;
      room->rows.insert(room->rows.end(), found, found + words());
      if (i < FoundPlaces::kMost) fetch(*found);
    }
    if (room->rows.empty()) return Status::ok;
    const uint64_t n = room->rows.size() / words();
    room->blocks.resize(n);
    room->ranks.resize(n);
    FPSTORE_TRY(identity_->find({room->rows.data(), n}, room->blocks.data(), room->ranks.data(),
                                stopping, fault));
    uint64_t next = 0;
    for (EntryPlace& place : room->places) {
      if (place.block != UINT64_MAX) continue;
      place = {room->blocks[next], room->ranks[next]};
      if (place.block == UINT64_MAX)
        return (*fault = Fault{Status::bad_digest, UINT64_MAX, room->rows[next * words()], 0})
            .status;
      ++next;
    }
    return Status::ok;
  }

  // Fetches ahead, all at once, what it takes to locate a fingerprint, by its leading word, and to
  // find its ids. What is wrong with it is told when it is read.
  void fetch(uint64_t leading) const {
    if (!blocks_) return;
    const TableView& t = blocks_->view;
    const uint64_t slot = t.directory_bits ? leading >> (64 - t.directory_bits) : 0;
    uint64_t low = std::min(read_once(t.directory[slot]), t.block_count),
             high = std::min(read_once(t.directory[slot + 1]), t.block_count);
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (t.keys[middle] < leading)
        low = middle + 1;
      else
        high = middle;
    }
    if (low >= t.block_count) return;
    for (uint32_t at = 0; at < t.block_bytes; at += 64)
      fetch_line(t.blocks + low * t.block_bytes + at);
    ids_->fetch(low);
  }

  Status order(Room* room, Stopper* stopping) const {
    if (room->sink.count > FoundPlaces::kMost) {
      int64_t lims[2];
      return order_matches(room->sink, found_words(), sizeof(uint16_t), 1, lims,
                           room->fingerprints.data(), room->distances.data(), 1, stopping);
    }
    with_row(found_words(), [&](auto row) { order_few<decltype(row)>(room); });
    return Status::ok;
  }

  bool find_ids(Room* room) const {
    room->ids.clear();
    room->id_ends.clear();
    for (uint64_t i = 0; i < room->sink.count; ++i) {
      uint64_t key[kMaxWords], seed = identity_->set_digest;
      Fault fault;
      if (identity_->read_key(room->places[i].block, key, &fault) != Status::ok) return false;
      for (unsigned j = 0; j < words(); ++j) seed += key[j];
      const SealedFile::Value value = ids_->find(key, room->places[i].block);
      if (!value.data) return false;
      room->record.assign(value.data,
                          value.data + value.size);  // what is checked of it is what is read of it
      IdRecord record;
      const uint32_t rank = room->places[i].rank;
      if (open_record(room->record.data(), room->record.size(), seed, &record, &fault) !=
              Status::ok ||
          rank >= record.count)
        return false;
      uint64_t first;
      const uint64_t count = ids_of_rank(record, rank, &first);
      for (uint64_t j = 0; j < count; ++j) room->ids.push_back(id_at(record, first + j));
      room->id_ends.push_back(room->ids.size());
    }
    return true;
  }

  nb::object owners_;  // keep alive what follows
  const AnyProber* prober_;
  const AnyTable* identity_;
  const Table* blocks_;  // the identity table, if it is one of blocks
  const SealedFile* ids_;
  unsigned radius_;
  Maker match_, list_;
};

}  // namespace

void bind_single(nb::module_& m) {
  nb::class_<SingleProber>(m, "SingleProber")
      .def(nb::init<nb::object, nb::object, nb::object, unsigned, nb::object, nb::object>(),
           "prober"_a, "identity"_a, "ids"_a, "radius"_a, "match_type"_a, "list_type"_a)
      .def("probe", &SingleProber::probe, "query"_a);
}

}  // namespace fpstore
