// Giving up the GIL and taking it, in a process that may end meanwhile.
#pragma once
#include <Python.h>
#include <unistd.h>

namespace fpstore {

// Up to version 3.13 Python ends a thread that wants the GIL once the interpreter has ended, such
// as a daemon thread, by unwinding its stack, and C++ code on the way ends the process. Such a
// thread sleeps until the process has ended.
template <class Take>
void take_gil(const Take& take) noexcept {
  try {
    take();
  } catch (...) {
    for (;;) pause();
  }
}

class ReleasedGil {
 public:
  ReleasedGil() = default;
  ~ReleasedGil() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_ = PyEval_SaveThread();
};

class HeldGil {
 public:
  HeldGil() {
    take_gil([this] { state_ = PyGILState_Ensure(); });
  }
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace fpstore
