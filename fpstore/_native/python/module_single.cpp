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

  // The matches by distance and fingerprint; None if the ids of one cannot be found in the file as
  // it should be.
  nb::object probe(nb::handle query) const {
    const unsigned words = prober_.words();
    const OneRow row(query, words);
    ThreadMatches lent;
    SingleMatches& found = *lent.get();
    Stopper stopping = stopper(nullptr);
    const bool with_ids = call([&] { return prober_.probe(row.words, &stopping, &found); });
    log_damaged_filters(prober_.prober());
    if (!with_ids) return nb::none();
    nb::object out = list_.make(0);
    for (uint64_t i = 0, first = 0; i < found.id_ends.size(); first = found.id_ends[i++]) {
      nb::object match = match_.make(3);
      PyTuple_SetItem(match.ptr(), 0,
                      number_of(found.fingerprints.data() + i * words, words).release().ptr());
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

}  // namespace

void bind_single(nb::module_& m) {
  nb::class_<BoundProber>(m, "SingleProber")
      .def(nb::init<const AnyProber*, const AnyTable*, const SealedFile*, unsigned, nb::object,
                    nb::object>(),
           "prober"_a, "identity"_a, "ids"_a, "radius"_a, "match_type"_a, "list_type"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("probe", &BoundProber::probe, "query"_a);
}

}  // namespace fpstore
