// Giving up the GIL and taking it, in a process that may end meanwhile.
#pragma once
#include <Python.h>
#include <unistd.h>

#include <atomic>

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

// For calls of a few microseconds, between which a thread holds the GIL for about as long. A thread
// that finds the GIL taken sleeps, and to wake it takes longer than such a call. So a thread first
// looks, for a while, whether the one that took the GIL last after such a call has given it up at
// its next one. If that was in vain, threads do longer work with the GIL, and giving it up does not
// pay: the next calls keep it, the more of them the more often it was in vain.
class BrieflyReleasedGil {
 public:
  BrieflyReleasedGil() {
    if (const unsigned left = keep_.load(std::memory_order_relaxed)) {
      keep_.store(left - 1, std::memory_order_relaxed);
      return;
    }
    state_ = PyEval_SaveThread();
    taken_.store(false, std::memory_order_release);
  }
  ~BrieflyReleasedGil() {
    if (!state_) return;
    const bool given_up = await_turn();
    take_gil([this] { PyEval_RestoreThread(state_); });
    const unsigned before = in_vain_.load(std::memory_order_relaxed);
    const unsigned in_vain = given_up ? before / 2 : before < kMostKept ? 2 * before + 1 : before;
    if (in_vain != before) in_vain_.store(in_vain, std::memory_order_relaxed);
    if (!given_up && !was_long_) keep_.store(in_vain, std::memory_order_relaxed);
  }
  // Of a call that met much, or waited for a disk: the next ones give up the GIL.
  void was_long() {
    was_long_ = true;
    keep_.store(0, std::memory_order_relaxed);
  }
  BrieflyReleasedGil(const BrieflyReleasedGil&) = delete;
  BrieflyReleasedGil& operator=(const BrieflyReleasedGil&) = delete;

 private:
  static constexpr unsigned kLooks = 1024, kMostKept = 1 << 10;

  static bool await_turn() noexcept {
    for (unsigned looks = 0;
         taken_.load(std::memory_order_relaxed) || taken_.exchange(true, std::memory_order_acquire);
         ++looks) {
      if (looks == kLooks) return false;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
    return true;
  }

  // Hints of all threads: none of them decides who has the GIL.
  inline static std::atomic<bool> taken_{
      false};  // by the last that took it after such a call, who has not given it up at another
  inline static std::atomic<unsigned> keep_{0};     // the next calls that keep the GIL
  inline static std::atomic<unsigned> in_vain_{0};  // how many keep it the next time
  PyThreadState* state_ = nullptr;
  bool was_long_ = false;
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
