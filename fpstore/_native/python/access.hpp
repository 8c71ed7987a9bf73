// Access of readers to a delta, beside the GIL.
#pragma once
#include "delta/delta.hpp"
#include "python/module.hpp"

namespace fpstore {

constexpr uint64_t kPauseWork = 1 << 14;

// Shared access: for batches without the GIL; for short calls the GIL is kept unless there is a
// wait. Access is given up now and then, so that signals are met and writers do not wait long.
class Access {
 public:
  enum class Gil { released, kept };
  Stopper stopping;

  explicit Access(const Delta& delta, Gil gil = Gil::released, const Stop* stop = nullptr)
      : stopping(stopper(stop)), gate_(delta.gate) {
    if (gil == Gil::released) released_.emplace();
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
    if (released_) {
      gate_.lock_shared();
    } else if (!gate_.try_lock_shared()) {
      const ReleasedGil released;
      gate_.lock_shared();
    }
    is_in_ = true;
  }

  std::optional<ReleasedGil> released_;
  Gate& gate_;
  bool is_in_ = false;
  uint64_t work_ = 0;
};
constexpr Access::Gil kBrief = Access::Gil::kept;

}  // namespace fpstore
