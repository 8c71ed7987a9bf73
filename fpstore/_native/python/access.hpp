// Access of readers to a delta, beside the GIL.
#pragma once
#include "delta/delta.hpp"
#include "python/module.hpp"

namespace fpstore {

constexpr uint64_t kPauseWork = 1 << 14;

// Shared access to a delta. A short call keeps the GIL unless there is a wait. Access is given up
// now and then, so that signals are met and writers do not wait long.
class Access {
 public:
  enum class Gil { released, kept };
  Stopper stopping;

  explicit Access(const Delta& delta, Gil gil, const Stop* stop = nullptr)
      : stopping(stopper(stop)), gate_(delta.gate), gil_(gil) {
    enter();
  }
  ~Access() { leave(); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  void leave() {
    if (std::exchange(is_in_, false)) gate_.unlock_shared();
  }
  void pause(uint64_t work) {
    if ((work_ += work) < kPauseWork) return;
    leave();
    const bool ended = should_stop(&stopping, std::exchange(work_, 0));
    enter();
    if (ended) throw Interrupted();
  }
  Pause pauses() {
    return [this](uint64_t work) { pause(work); };
  }

 private:
  void enter() {
    if (gil_ == Gil::released)
      gate_.lock_shared();
    else if (!gate_.try_lock_shared())
      call([this] { gate_.lock_shared(); });
    is_in_ = true;
  }

  Gate& gate_;
  Gil gil_;
  bool is_in_ = false;
  uint64_t work_ = 0;
};

// What work(access) returns, without the GIL.
template <class Work>
auto read(const Delta& delta, const Stop* stop, const Work& work) {
  return call([&] {
    Access access(delta, Access::Gil::released, stop);
    return work(access);
  });
}

}  // namespace fpstore
