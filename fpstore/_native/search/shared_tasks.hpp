// Tasks of one call, which several threads share.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

#include "isa/runtime.hpp"

namespace fpstore {

// Numbered tasks that threads take one by one.
class SharedTasks {
 public:
  // What a thread does: it takes tasks until there is none. It must not throw.
  using Work = std::function<void(Stopper*)>;

  explicit SharedTasks(size_t count) : count_(count) {}
  SharedTasks(const SharedTasks&) = delete;
  SharedTasks& operator=(const SharedTasks&) = delete;

  // Works on this thread and up to threads - 1 others, until all are done. The other threads end
  // when the stopper of this one says so.
  void run(unsigned threads, Stopper* stop, const Work& work);
  // The number of a task that nobody has taken; false when there is none.
  bool take(size_t* task);
  // No more tasks are to be done: those that have been taken are to end.
  void end() { ended_.store(true, std::memory_order_relaxed); }

 private:
  void work_beside(const Work& work);
  void await_others(Stopper* stop);

  const size_t count_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable done_;
  unsigned running_ = 0;
};

}  // namespace fpstore
