// What the files that know Python share: array types, buffers that become arrays, and faults that become exceptions.
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

#include "format/header.hpp"
#include "isa/kernels.hpp"
#include "python/gil.hpp"
#include "search/results.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fpstore {

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableWords = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableCounts = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Rows of fingerprints: words of shape (n,), or (n, 2) or (n, 4).
using Rows = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;
using MutableRows = nb::ndarray<uint64_t, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An uninitialised buffer that becomes a NumPy array without a copy.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : data_(new T[n ? n : 1]) {}
  T* get() { return data_.get(); }
  nb::object array(size_t n) {
    const nb::capsule memory = given_away();
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(memory.data(), {n}, memory));
  }
  // n rows of so many words.
  nb::object array(size_t n, unsigned words) {
    if (words == 1) return array(n);
    const nb::capsule memory = given_away();
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<2>>(memory.data(), {n, words}, memory));
  }

 private:
  // The memory, in an object that frees it. It stays here where there is none for that object.
  nb::capsule given_away() {
    nb::capsule memory(data_.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    data_.release();
    return memory;
  }

  std::unique_ptr<T[]> data_;
};

// The words of each of the rows.
template <class Array>
unsigned words_in(const Array& rows) {
  if (rows.ndim() == 1) return 1;
  if (rows.ndim() != 2 || (rows.shape(1) != 2 && rows.shape(1) != 4)) throw nb::value_error("rows have 1, 2 or 4 words");
  return static_cast<unsigned>(rows.shape(1));
}
template <class Array>
void need_words(const Array& rows, unsigned words) {
  if (words_in(rows) != words) throw nb::value_error("rows of another width");
}
template <class Array>
size_t count_of(const Array& rows) {
  return rows.shape(0);
}

// One row, and the number of as many words that it is in Python.
struct OneRow {
  uint64_t words[kMaxWords] = {};

  OneRow() = default;
  OneRow(nb::handle number, unsigned count) {
    if (count == 1) {
      if (!nb::try_cast(number, words[0])) throw nb::type_error("a fingerprint of this width is a number below 2^64");
      return;
    }
    const nb::bytes data = nb::cast<nb::bytes>(number.attr("to_bytes")(8 * count, "big"));
    for (unsigned i = 0; i < count; ++i) words[i] = load64be(reinterpret_cast<const uint8_t*>(data.c_str()) + 8 * i);
  }
};
inline nb::object number_of(const uint64_t* row, unsigned words) {
  if (words == 1) return nb::cast(*row);
  uint8_t data[8 * kMaxWords];
  for (unsigned i = 0; i < words; ++i) store64be(data + 8 * i, row[i]);
  const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(&PyLong_Type));
  return type.attr("from_bytes")(nb::bytes(reinterpret_cast<const char*>(data), 8 * words), "big");
}

// Stops the calls that were given it, from another thread.
struct Stop {
  std::atomic<bool> wanted{false};
  void set() { wanted.store(true, std::memory_order_relaxed); }
  bool is_set() const { return wanted.load(std::memory_order_relaxed); }
};

// Runs the handlers of signals that came, which only the main thread does; true when one raised. The caller holds no lock.
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

// What was being sorted when the work was stopped is in no order.
template <class Work>
void until_stopped(const Stop* stop, Work work) {
  Stopper stopping = stopper(stop);
  ReleasedGil released;
  work(&stopping);
  if (stopping.ended) throw Interrupted();
}

struct SinkGuard {
  Sink sink;
  ~SinkGuard() { release(&sink); }
};

struct NearestGuard {
  Nearest nearest;
  ~NearestGuard() { release(&nearest); }
};

// Which queries have more matches than were kept.
inline nb::object more_of(const Nearest& nearest) {
  Buffer<uint8_t> more(nearest.query_count);
  for (uint64_t q = 0; q < nearest.query_count; ++q) more.get()[q] = nearest.queries[q].more;
  return more.array(nearest.query_count);
}

// Matches in the order in which they are handed out; made without the GIL.
struct OrderedMatches {
  size_t queries, count;
  unsigned words, distance_size;
  Buffer<int64_t> lims;
  Buffer<uint64_t> fingerprints;
  Buffer<uint8_t> bytes;
  Buffer<uint16_t> pairs_of_bytes;
  Status status;

  // Of fingerprints of a width, or of as many numbers of rows.
  OrderedMatches(const Sink& sink, unsigned width, unsigned row_words, size_t n, unsigned threads, Stopper* stop)
      : queries(n), count(sink.count), words(row_words), distance_size(distance_bytes(width)), lims(n + 1),
        fingerprints(count * words), bytes(is_byte() ? count : 0), pairs_of_bytes(is_byte() ? 0 : count) {
    void* const distances = is_byte() ? static_cast<void*>(bytes.get()) : pairs_of_bytes.get();
    status = order_matches(sink, words, distance_size, n, lims.get(), fingerprints.get(), distances, threads, stop);
  }
  bool is_byte() const { return distance_size == 1; }
  unsigned distance(size_t i) { return is_byte() ? bytes.get()[i] : pairs_of_bytes.get()[i]; }
  // (lims, fingerprints, distances)
  nb::tuple columns() {
    return nb::make_tuple(lims.array(queries + 1), fingerprints.array(count, words),
                          is_byte() ? bytes.array(count) : pairs_of_bytes.array(count));
  }
};

[[noreturn]] inline void raise(const char* type, const std::string& message, nb::dict facts) {
  nb::object error = nb::module_::import_("fpstore.errors").attr(type)(message, **facts);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

// The handler of a signal may have raised; a stop has not.
inline void note_interrupted() {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_InterruptedError, "the call was stopped");
}

[[noreturn]] inline void raise_fault(const Fault& fault, const std::string& path) {
  if (fault.status == Status::interrupted) {  // perhaps with the exception of a handler set: nothing of Python may be called
    note_interrupted();
    throw nb::python_error();
  }
  nb::dict facts;
  facts["path"] = path;
  facts["expected"] = fault.expected;
  facts["got"] = fault.got;
  std::string where = path;
  if (fault.block != UINT64_MAX) {
    facts["block"] = fault.block;
    where += ", block " + std::to_string(fault.block);
  }
  const std::string numbers = " (expected " + std::to_string(fault.expected) + ", got " + std::to_string(fault.got) + ")";
  switch (fault.status) {
    case Status::out_of_memory:
      raise("MemoryLimitError", "out of memory while collecting matches: probe fewer queries at a time", facts);
    case Status::unknown_version:
    case Status::unknown_flags:
    case Status::unknown_width:
      raise("FormatVersionError", where + ": " + describe(fault.status) + numbers + ": a newer fpstore wrote it; upgrade to read it",
            facts);
    default:
      raise("CorruptStoreError", where + ": " + describe(fault.status) + numbers, facts);
  }
}

inline void check(Status status, const Fault& fault, const std::string& path) {
  if (status != Status::ok) raise_fault(fault, path);
}

// A permutation of the bits of a fingerprint, or its inverse; ValueError if it is none (module.cpp).
Permutation permutation_of(const Bytes& source, bool inverse);

// (blocks, ranks) of n fingerprints, as find(blocks, ranks, stop), which needs no GIL, notes them; check(status) raises what it says.
template <class Find, class Check>
nb::tuple located(size_t n, Find find, Check check) {
  Buffer<uint64_t> blocks(n);
  Buffer<uint32_t> ranks(n);
  Stopper stopping = stopper(nullptr);
  Status status;
  {
    ReleasedGil released;
    status = find(blocks.get(), ranks.get(), &stopping);
  }
  check(status);
  return nb::make_tuple(blocks.array(n), ranks.array(n));
}

// Adds the classes of tables (module_tables.cpp), and of look-ups in them (module_probers.cpp).
void bind_tables(nb::module_& m);
void bind_probers(nb::module_& m);
// Adds the classes of sealed files (module_sealed.cpp), and of single probes (module_single.cpp).
void bind_sealed(nb::module_& m);
void bind_single(nb::module_& m);
// Adds the classes of column tables, and what their writer needs (module_columns.cpp).
void bind_columns(nb::module_& m);
// Adds the class BlockEncoder (module_encoder.cpp).
void bind_encoder(nb::module_& m);
// Adds the classes of filters (module_filters.cpp).
void bind_filters(nb::module_& m);
void bind_numbered(nb::module_& m);
// Adds the class Delta (module_delta.cpp).
void bind_delta(nb::module_& m);

// Adds the functions of streaming merges (module_merge.cpp).
void bind_merge(nb::module_& m);
// Adds the function that reads logs (module_log.cpp).
void bind_log(nb::module_& m);
// Adds the functions that read records of strings (module_strings.cpp).
void bind_strings(nb::module_& m);
// Adds what finds the pairs of a set, and what they connect (module_pairs.cpp).
void bind_pairs(nb::module_& m);

// Adds what makes fingerprints of texts (module_text.cpp).
void bind_text(nb::module_& m);

}  // namespace fpstore
