// How a call of the standard library, whose steps return something else, ends early: an exception,
// which files compiled for one instruction set cannot throw.
#pragma once
#include "isa/runtime.hpp"

namespace fpstore {

// Thrown out of a call that is to end early.
struct Interrupted {};

// Called once for each of many small steps.
class Steps {
 public:
  explicit Steps(Stopper* stop) : stop_(stop) {}
  void tick() {
    if (--left_) return;
    left_ = kSteps;
    if (should_stop(stop_, kSteps)) throw Interrupted();
  }

 private:
#ifdef FPSTORE_SMALL
  static constexpr uint32_t kSteps = 1 << 2;
#else
  static constexpr uint32_t kSteps = 1 << 12;
#endif
  Stopper* stop_;
  uint32_t left_ = kSteps;
};

}  // namespace fpstore
