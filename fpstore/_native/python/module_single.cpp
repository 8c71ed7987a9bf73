// The class of single probes, from the number to the matches with their ids in one call.
#include "python/tables.hpp"
#include "search/single.hpp"

namespace fpstore {
namespace {

// Makes objects of a class of Python that is a tuple or a list, as __new__ of these does.
class InstanceFactory {
 public:
  InstanceFactory(nb::object made_of, PyTypeObject* base) : type_(std::move(made_of)) {
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

// A prober, and the classes of Python that its answers are made of.
class BoundProber {
 public:
  BoundProber(const AnyProber* prober, const AnyTable* identity, const SealedFile* ids,
              unsigned radius, nb::object match_type, nb::object list_type)
      : prober_(prober, identity, ids, radius),
        match_(std::move(match_type), &PyTuple_Type),
        list_(std::move(list_type), &PyList_Type) {}

  unsigned width() const { return prober_.width(); }

  // The matches of a number of the kernel's, by distance and fingerprint; None if the ids of one
  // cannot be found in the file as it should be.
  nb::object probe(nb::handle query) const {
    return probe_row(OneRow(query, prober_.words()), nb::handle(), 0);
  }

  // The fingerprints of the matches lose their last `unused` bits. One that equals the query is the
  // same number, if there is one.
  nb::object probe_row(const OneRow& row, nb::handle number, unsigned unused) const {
    const unsigned words = prober_.words();
    ThreadMatches lent;
    SingleMatches& found = *lent.get();
    Stopper stopping = stopper(nullptr);
    const bool with_ids = call([&] { return prober_.probe(row.words, &stopping, &found); });
    log_damaged_filters(prober_.prober());
    if (!with_ids) return nb::none();
    nb::object out = list_.make(0);
    for (uint64_t i = 0, first = 0; i < found.id_ends.size(); first = found.id_ends[i++]) {
      uint64_t* const fingerprint = found.fingerprints.data() + i * words;
      fingerprint[0] >>= unused;
      nb::object match = match_.make(3);
      nb::object own = !found.distances[i] && number.is_valid() ? nb::borrow(number)
                                                                : number_of(fingerprint, words);
      PyTuple_SetItem(match.ptr(), 0, own.release().ptr());
      PyTuple_SetItem(match.ptr(), 1, nb::int_(found.distances[i]).release().ptr());
      PyTuple_SetItem(match.ptr(), 2,
                      list_of(found.ids.data() + first, found.id_ends[i] - first).release().ptr());
      if (PyList_Append(out.ptr(), match.ptr())) throw nb::python_error();
    }
    return out;
  }

 private:
  SingleProber prober_;
  InstanceFactory match_, list_;
};

// The snapshot that a store answers from, which is current as long as a word of a mapped log is
// what it was. It answers the usual probes of a snapshot that has a `usual_prober`.
class CurrentSnapshot {
 public:
  CurrentSnapshot(nb::object array_type, nb::object number_type)
      : array_type_(std::move(array_type)), number_type_(std::move(number_type)) {}

  // The snapshot is current while the word at a place of the mapped words is `known`.
  void set(nb::handle words, size_t at, uint64_t known, nb::object snapshot) {
    replace(std::make_unique<State>(words, at, known, std::move(snapshot)));
  }
  void clear() { replace(nullptr); }

  nb::object snapshot() const { return state_ ? state_->snapshot : nb::none(); }
  // The snapshot, or None if it may no longer be current.
  nb::object get() const { return is_current() ? state_->snapshot : nb::none(); }

  // The matches, or None for whatever takes another way: a snapshot that is not current or has no
  // such prober, a fingerprint in another form or out of range, or a damaged file.
  nb::object probe(nb::handle fingerprint) {
    if (!is_current()) return nb::none();
    const nb::object prober = usual_prober();  // another thread may drop it during the probe
    if (prober.is_none()) return nb::none();
    const BoundProber& bound = *nb::inst_ptr<BoundProber>(prober);
    OneRow row;
    if (!read(fingerprint, bound.width(), &row)) return nb::none();
    const bool is_int = PyLong_CheckExact(fingerprint.ptr());
    return bound.probe_row(row, is_int ? fingerprint : nb::handle(),
                           bound.width() < 64 ? 64 - bound.width() : 0);
  }

 private:
  struct State {
    Py_buffer words;
    const uint64_t* word;
    uint64_t known;
    nb::object snapshot, prober;  // the prober once it has been asked for

    State(nb::handle mapped, size_t at, uint64_t known_word, nb::object current)
        : known(known_word), snapshot(std::move(current)) {
      if (PyObject_GetBuffer(mapped.ptr(), &words, PyBUF_SIMPLE)) throw nb::python_error();
      word = static_cast<const uint64_t*>(words.buf) + at;
    }
    ~State() { PyBuffer_Release(&words); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
  };

  // What was there is dropped last: that may run code of Python, which finds the new state.
  void replace(std::unique_ptr<State> state) { state_.swap(state); }
  bool is_current() const {
    return state_ && __atomic_load_n(state_->word, __ATOMIC_ACQUIRE) == state_->known;
  }
  nb::object usual_prober() {
    if (state_->prober.is_valid()) return state_->prober;
    const nb::object snapshot = state_->snapshot;
    nb::object prober = snapshot.attr("usual_prober");
    need(prober.is_none() || nb::isinstance<BoundProber>(prober), "a prober of single queries");
    // Meanwhile another thread may have set another snapshot.
    if (state_ && snapshot.is(state_->snapshot)) state_->prober = prober;
    return prober;
  }

  bool read(nb::handle value, unsigned width, OneRow* row) const {
    PyObject* const p = value.ptr();
    if (PyLong_CheckExact(p)) return read_number(value, width, row);
    if (PyBytes_CheckExact(p)) {
      if (8 * static_cast<size_t>(PyBytes_Size(p)) != width) return false;
      row->read_bytes(PyBytes_AsString(p), width / 8);
      return true;
    }
    const nb::handle type = value.type();
    if (type.is(array_type_)) return read_array(value, width, row);
    if (!type.is(number_type_)) return false;
    const nb::object number = nb::steal(PyNumber_Index(p));
    if (!number.is_valid()) throw nb::python_error();
    return read_number(number, width, row);
  }

  // Numbers that are negative or do not fit are errors, which the other way names.
  static bool read_number(nb::handle number, unsigned width, OneRow* row) {
    if (width > 64) {
      if (row->read_wide(number, width / 64)) return true;
      PyErr_Clear();
      return false;
    }
    const unsigned long long word = PyLong_AsUnsignedLongLong(number.ptr());
    if (word == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    row->words[0] = width < 64 ? word << (64 - width) : word;
    return width == 64 || !(word >> width);
  }

  // Bytes, or above 64 bits words, of one fingerprint.
  static bool read_array(nb::handle array, unsigned width, OneRow* row) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_ND | PyBUF_FORMAT)) {
      PyErr_Clear();
      return false;
    }
    const std::string format = buffer.format ? buffer.format : "";
    const bool fits = buffer.ndim == 1 && 8 * static_cast<size_t>(buffer.len) == width,
               bytes = fits && format == "B",
               words =
                   fits && width > 64 && buffer.itemsize == 8 && (format == "L" || format == "Q");
    if (bytes)
      row->read_bytes(buffer.buf, width / 8);
    else if (words)
      memcpy(row->words, buffer.buf, width / 8);
    PyBuffer_Release(&buffer);
    return bytes || words;
  }

  nb::object array_type_, number_type_;
  std::unique_ptr<State> state_;  // nothing where no snapshot is known
};

}  // namespace

void bind_single(nb::module_& m) {
  nb::class_<BoundProber>(m, "SingleProber")
      .def(nb::init<const AnyProber*, const AnyTable*, const SealedFile*, unsigned, nb::object,
                    nb::object>(),
           "prober"_a, "identity"_a, "ids"_a, "radius"_a, "match_type"_a, "list_type"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("probe", &BoundProber::probe, "query"_a);
  nb::class_<CurrentSnapshot>(m, "CurrentSnapshot")
      .def(nb::init<nb::object, nb::object>(), "array_type"_a, "number_type"_a)
      .def("set", &CurrentSnapshot::set, "words"_a, "at"_a, "known"_a, "snapshot"_a)
      .def("clear", &CurrentSnapshot::clear)
      .def_prop_ro("snapshot", &CurrentSnapshot::snapshot)
      .def("get", &CurrentSnapshot::get)
      .def("probe", &CurrentSnapshot::probe, "fingerprint"_a.none());
}

}  // namespace fpstore
