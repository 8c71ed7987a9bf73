// What the files that know Python share: array types, buffers that become arrays, and faults that become exceptions.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
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

namespace nb = nanobind;
using namespace nb::literals;

namespace fpstore {

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableWords = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableCounts = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An uninitialised buffer that becomes a NumPy array without a copy.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : data_(new T[n ? n : 1]) {}
  T* get() { return data_.get(); }
  nb::object array(size_t n) {
    T* p = data_.release();
    nb::capsule owner(p, [](void* q) noexcept { delete[] static_cast<T*>(q); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(p, {n}, owner));
  }

 private:
  std::unique_ptr<T[]> data_;
};

// Stops the calls that were given it, from another thread.
struct Stop {
  std::atomic<bool> wanted{false};
  void set() { wanted.store(true, std::memory_order_relaxed); }
  bool is_set() const { return wanted.load(std::memory_order_relaxed); }
};

// Runs the handlers of signals that came, which only the main thread does; true when one raised. The caller holds no lock.
inline bool meet_signals() {
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

struct SinkGuard {
  Sink sink;
  ~SinkGuard() { release(&sink); }
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

// Adds the classes Table, Prober and BlockEncoder (module_tables.cpp).
void bind_tables(nb::module_& m);
// Adds the classes of column tables, and what their writer needs (module_columns.cpp).
void bind_columns(nb::module_& m);
// Adds the class Delta (module_delta.cpp).
void bind_delta(nb::module_& m);

// Adds the functions of streaming merges (module_merge.cpp).
void bind_merge(nb::module_& m);
// Adds the function that reads logs (module_log.cpp).
void bind_log(nb::module_& m);
// Adds the functions that read records of strings (module_strings.cpp).
void bind_strings(nb::module_& m);

}  // namespace fpstore
