// What the files that know Python share: array types, buffers that become arrays, and faults that
// become exceptions.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/errors.hpp"
#include "format/header.hpp"
#include "format/span.hpp"
#include "isa/kernels.hpp"
#include "python/gil.hpp"
#include "search/results.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fpstore {

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = Array<const uint64_t>;
using MutableWords = Array<uint64_t>;
using Bytes = Array<const uint8_t>;
using MutableBytes = Array<uint8_t>;
using Counts = Array<const uint32_t>;
using MutableCounts = Array<uint32_t>;
using Lims = Array<const int64_t>;
// Rows of fingerprints: words of shape (n,), or (n, 2) or (n, 4).
using Rows = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;
using MutableRows = nb::ndarray<uint64_t, nb::c_contig, nb::device::cpu>;

// An argument that is an array of this dtype: one of another dtype is an error, and is not
// converted.
inline auto operator""_array(const char* name, size_t) { return nb::arg(name).noconvert(); }
inline auto optional_stop() { return "stop"_a = nb::none(); }

inline const uint8_t* data_of(const nb::bytes& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.c_str());
}
inline nb::bytes bytes_of(const void* data, size_t size) {
  return nb::bytes(static_cast<const char*>(data), size);
}

template <class T>
Span<const T> span_of(const Array<const T>& values) {
  return {values.data(), values.size()};
}
// What a message says is wrong with columns of one call.
constexpr const char* kUnequal = "columns of different lengths";

// Spans of a column: span i is at [offsets[i], offsets[i + 1]). Returns how many there are.
inline size_t count_of_spans(size_t size, const Words& offsets) {
  need(offsets.size(), "offsets have a start");
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    need(offsets.data()[i] <= offsets.data()[i + 1], "offsets descend");
  need(offsets.data()[offsets.size() - 1] <= size, "offsets run past the text");
  return offsets.size() - 1;
}

// An uninitialised buffer that becomes a NumPy array without a copy.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : data_(new T[n ? n : 1]) {}
  T* get() { return data_.get(); }
  // n rows of `words` words.
  nb::object array(size_t n, size_t words = 1) {
    const nb::capsule memory(data_.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    const size_t shape[] = {n, words};
    return nb::cast(nb::ndarray<nb::numpy, T>(data_.release(), words == 1 ? 1 : 2, shape, memory));
  }

 private:
  std::unique_ptr<T[]> data_;
};

// Bytes of Python that are written before anybody else has them.
class BytesBuffer {
 public:
  explicit BytesBuffer(size_t n)
      : bytes_(nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n)))) {
    check(bytes_.is_valid());
  }
  uint8_t* get() { return reinterpret_cast<uint8_t*>(PyBytes_AsString(bytes_.ptr())); }
  // The first n bytes.
  nb::object bytes(size_t n) {
    PyObject* bytes = bytes_.release().ptr();
    check(_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(n)) == 0);
    return nb::steal(bytes);
  }

 private:
  static void check(bool done) {
    if (done) return;
    PyErr_Clear();
    throw std::bad_alloc();
  }
  nb::object bytes_;
};

// The bytes of an object that has the buffer interface.
class View {
 public:
  explicit View(nb::object object) : object_(std::move(object)) {
    if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_SIMPLE)) throw nb::python_error();
  }
  ~View() { PyBuffer_Release(&buffer_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  const uint8_t* data() const { return static_cast<const uint8_t*>(buffer_.buf); }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  nb::object object_;
  Py_buffer buffer_;
};

// An array of `words` columns, which owns the values.
template <class T>
nb::object array_of(std::vector<T> values, unsigned words = 1) {
  if (values.empty()) return Buffer<T>(0).array(0, words);
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = owner->data();
  const size_t shape[] = {owner->size() / words, words};
  const nb::capsule memory(owner.get(),
                           [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  owner.release();
  return nb::cast(nb::ndarray<nb::numpy, T>(data, words == 1 ? 1 : 2, shape, memory));
}

template <class Some>
unsigned words_in(const Some& rows) {
  if (rows.ndim() == 1) return 1;
  need(rows.ndim() == 2 && (rows.shape(1) == 2 || rows.shape(1) == 4),
       "rows are an array of shape (n,), (n, 2) or (n, 4)");
  return static_cast<unsigned>(rows.shape(1));
}
template <class Some>
void need_words(const Some& rows, unsigned words) {
  need(words_in(rows) == words,
       "rows of another width: their shape is (n,) up to 64 bits, (n, 2) of 128 and (n, 4) of 256");
}
template <class Some>
size_t count_of(const Some& rows) {
  return rows.shape(0);
}

// Methods of int between numbers and bytes. Looking them up takes as long as they do.
struct IntMethods {
  PyObject *to_bytes, *from_bytes, *big;
};
inline const IntMethods& int_methods() {
  static const IntMethods methods = [] {
    const nb::handle type(reinterpret_cast<PyObject*>(&PyLong_Type));
    return IntMethods{nb::getattr(type, "to_bytes").release().ptr(),
                      nb::getattr(type, "from_bytes").release().ptr(),
                      nb::str("big").release().ptr()};
  }();
  return methods;
}

// One row, and the number of as many words that it is in Python.
struct OneRow {
  uint64_t words[kMaxWords] = {};

  OneRow() = default;
  OneRow(nb::handle number, unsigned count) {
    if (count == 1) {
      if (!nb::try_cast(number, words[0]))
        throw nb::type_error("a fingerprint of this width is a number below 2^64");
      return;
    }
    if (!read_wide(number, count)) throw nb::python_error();
  }
  // Reads an int of 128 or 256 bits; false with an exception if it is negative or does not fit.
  bool read_wide(nb::handle number, unsigned count) {
    const IntMethods& methods = int_methods();
    const nb::int_ size(8 * count);
    PyObject* const arguments[] = {number.ptr(), size.ptr(), methods.big};
    const nb::object data = nb::steal(PyObject_Vectorcall(methods.to_bytes, arguments, 3, nullptr));
    if (data.is_valid()) read_bytes(PyBytes_AsString(data.ptr()), 8 * count);
    return data.is_valid();
  }
  // Reads big-endian bytes: 4, or those of whole words.
  void read_bytes(const void* data, size_t size) {
    uint8_t bytes[8 * kMaxWords] = {};
    memcpy(bytes, data, size);
    for (size_t i = 0; 8 * i < size; ++i) words[i] = load64be(bytes + 8 * i);
  }
};
inline nb::object number_of(const uint64_t* row, unsigned words) {
  if (words == 1) return nb::cast(*row);
  uint8_t data[8 * kMaxWords];
  for (unsigned i = 0; i < words; ++i) store64be(data + 8 * i, row[i]);
  const IntMethods& methods = int_methods();
  const nb::bytes bytes = bytes_of(data, 8 * words);
  PyObject* const arguments[] = {bytes.ptr(), methods.big};
  nb::object number = nb::steal(PyObject_Vectorcall(methods.from_bytes, arguments, 2, nullptr));
  if (!number.is_valid()) throw nb::python_error();
  return number;
}

// Stops the calls that were given it, from another thread.
struct Stop {
  std::atomic<bool> wanted{false};
  void set() { wanted.store(true, std::memory_order_relaxed); }
  bool is_set() const { return wanted.load(std::memory_order_relaxed); }
};

// Runs the handlers of signals that came, which only the main thread does; true when one raised.
// The caller holds no lock.
inline bool meet_signals(void*) {
  if (syscall(SYS_gettid) != getpid()) return false;
  HeldGil held;
  return PyErr_CheckSignals() != 0;
}

// For a call that a signal may stop in the main thread, and another thread where there is a stop.
inline Stopper stopper(const Stop* stop) {
  Stopper out;
  if (stop) out.wanted = &stop->wanted;
  out.poll = &meet_signals;
  return out;
}

// Runs work() without the GIL, and returns what it does. What it throws becomes an exception.
template <class Work>
auto call(const Work& work) {
  const ReleasedGil released;
  return work();
}

// After a Stop, or nullptr: work(stopper), which throws when it was stopped: what it was writing is
// then in no order. After a file, or what says of a fault which file it is in: work(fault), which
// returns a status.
template <class Target, class Work>
auto call(const Target& target, const Work& work) {
  if constexpr (std::is_convertible_v<Target, const Stop*>) {
    Stopper stopping = stopper(target);
    return call([&] {
      if constexpr (std::is_void_v<decltype(work(&stopping))>) {
        work(&stopping);
        if (stopping.ended) throw Interrupted();
      } else {
        auto result = work(&stopping);
        if (stopping.ended) throw Interrupted();
        return result;
      }
    });
  } else {
    call([&] {
      Fault fault;
      if (work(&fault) == Status::ok) return;
      if constexpr (std::is_invocable_v<Target, const Fault&>)
        throw FileFault{fault, target(fault)};
      else
        throw FileFault{fault, target};
    });
  }
}

struct SinkGuard {
  Sink sink;
  ~SinkGuard() { release(&sink); }
};

struct NearestGuard {
  Nearest nearest;
  ~NearestGuard() { release(&nearest); }
};

// Matches in the order in which they are handed out. Making them needs no GIL.
struct OrderedMatches {
  size_t queries, count;
  unsigned words, distance_size;
  Buffer<int64_t> lims;
  Buffer<uint64_t> fingerprints;
  Buffer<uint8_t> bytes;
  Buffer<uint16_t> shorts;

  // Of fingerprints of a width, or of numbers of rows, which have one word.
  OrderedMatches(const Sink& sink, unsigned width, unsigned row_words, size_t n, unsigned threads,
                 Stopper* stop)
      : queries(n),
        count(sink.count),
        words(row_words),
        distance_size(distance_bytes(width)),
        lims(n + 1),
        fingerprints(count * words),
        bytes(is_byte() ? count : 0),
        shorts(is_byte() ? 0 : count) {
    void* const distances = is_byte() ? static_cast<void*>(bytes.get()) : shorts.get();
    const Status status = order_matches(sink, words, distance_size, n, lims.get(),
                                        fingerprints.get(), distances, threads, stop);
    if (status == Status::interrupted) throw Interrupted();
    if (status != Status::ok) throw std::bad_alloc();
  }
  bool is_byte() const { return distance_size == 1; }
  unsigned distance(size_t i) { return is_byte() ? bytes.get()[i] : shorts.get()[i]; }
  // (lims, fingerprints, distances)
  nb::tuple columns() {
    return nb::make_tuple(lims.array(queries + 1), fingerprints.array(count, words),
                          is_byte() ? bytes.array(count) : shorts.array(count));
  }
  // (lims, fingerprints, distances, which queries have more matches than were kept)
  nb::tuple columns(const Nearest& nearest) {
    Buffer<uint8_t> more(queries);
    for (size_t q = 0; q < queries; ++q) more.get()[q] = nearest.queries[q].more;
    const nb::tuple all = columns();
    return nb::make_tuple(all[0], all[1], all[2], more.array(queries));
  }
};

// Raises an exception of fpstore.errors; facts are keywords.
template <class... Facts>
[[noreturn]] void raise(const char* type, const std::string& message, Facts&&... facts) {
  nb::object error =
      nb::module_::import_("fpstore.errors").attr(type)(message, std::forward<Facts>(facts)...);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}
// A key that is not above the key before.
[[noreturn]] inline void raise_disorder(const uint64_t* previous, const uint64_t* key,
                                        unsigned words) {
  raise("InputError", "keys out of order: each must be greater than the one before",
        "expected"_a = number_of(previous, words), "got"_a = number_of(key, words));
}

// The handler of a signal may have raised; a stop has not.
inline void note_interrupted() {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_InterruptedError, "the call was stopped");
}

// The matches that search(sink, stopping, fault) finds without the GIL, of n queries of
// fingerprints of a width, or of numbers of rows: none if there are more than `most`.
template <class Target, class Search>
std::optional<OrderedMatches> matches_of(const Target& file, unsigned width, unsigned row_words,
                                         size_t n, unsigned threads, std::optional<uint64_t> most,
                                         const Stop* stop, const Search& search) {
  SinkGuard guard;
  guard.sink.limit = most.value_or(UINT64_MAX);
  Stopper stopping = stopper(stop);
  std::optional<OrderedMatches> found;
  call(file, [&](Fault* fault) {
    const Status status = search(&guard.sink, &stopping, fault);
    if (status == Status::out_of_memory && guard.sink.count >= guard.sink.limit) return Status::ok;
    if (status == Status::ok) found.emplace(guard.sink, width, row_words, n, threads, &stopping);
    return status;
  });
  return found;
}

// A header with what all have. What does not fit a field of 16 bits is no argument of that type.
template <class Header>
Header make_header(const Bytes& permutation, uint64_t set_digest, uint16_t table,
                   uint16_t table_count) {
  need(permutation.size() <= kMaxWidth, "a permutation has an entry for each bit");
  Header h;
  h.width = static_cast<uint16_t>(permutation.size());
  h.table = table;
  h.table_count = table_count;
  h.set_digest = set_digest;
  std::copy_n(permutation.data(), permutation.size(), h.permutation);
  return h;
}

// Adds what headers say to a class of files that have one, as properties: names and fields by
// turns.
template <class Bound, class Field, class... More>
void bind_fields(Bound& bound, const char* name, Field field, More... more) {
  bound.def_prop_ro(name, [field](const typename Bound::Type& file) { return file.header.*field; });
  if constexpr (sizeof...(more) > 0) bind_fields(bound, more...);
}
template <class Header, class Bound>
void bind_header(Bound& bound) {
  using Mapped = typename Bound::Type;
  bound.def_prop_ro("path", [](const Mapped& mapped) { return mapped.file.path; });
  bound.def_prop_ro("permutation", [](const Mapped& mapped) {
    return bytes_of(mapped.header.permutation, mapped.header.width);
  });
  bind_fields(bound, "version", &Header::version, "width", &Header::width, "table", &Header::table,
              "table_count", &Header::table_count, "file_bytes", &Header::file_bytes, "set_digest",
              &Header::set_digest);
}

// What each module_*.cpp adds.
using Bind = void(nb::module_& m);
Bind bind_columns, bind_delta, bind_lines, bind_lsh, bind_numbered, bind_pairs, bind_passages,
    bind_probers, bind_records, bind_sealed, bind_single, bind_strings, bind_tables, bind_text,
    bind_writers;

}  // namespace fpstore
