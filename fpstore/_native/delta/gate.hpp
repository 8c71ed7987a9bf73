// A reader-writer lock without starvation.
#pragma once
#include <mutex>
#include <shared_mutex>

namespace fpstore {

// A reader-writer lock without starvation: everybody passes gate_ first, and a writer holds it until it unlocks.
class Gate {
 public:
  void lock() {
    gate_.lock();
    access_.lock();
  }
  bool try_lock() {
    if (!gate_.try_lock()) return false;
    if (access_.try_lock()) return true;
    gate_.unlock();
    return false;
  }
  void unlock() {
    access_.unlock();
    gate_.unlock();
  }
  void lock_shared() {
    std::lock_guard<std::mutex> turn(gate_);
    access_.lock_shared();
  }
  bool try_lock_shared() {
    std::unique_lock<std::mutex> turn(gate_, std::try_to_lock);
    return turn.owns_lock() && access_.try_lock_shared();
  }
  void unlock_shared() { access_.unlock_shared(); }

 private:
  std::mutex gate_;
  std::shared_mutex access_;
};

}  // namespace fpstore
