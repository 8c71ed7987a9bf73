#include "search/shared_tasks.hpp"

#include <exception>
#include <thread>
#include <vector>

namespace fpstore {

void SharedTasks::run(unsigned threads, Stopper* stop, const Work& work) {
  if (threads > count_) threads = static_cast<unsigned>(count_);
  std::vector<std::thread> others;
  try {
    for (unsigned i = 1; i < threads; ++i) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++running_;
      }
      others.emplace_back([this, &work] { work_beside(work); });
    }
  } catch (const std::exception&) {
    // The system has no more threads, or memory for one: those that run do the work.
    const std::lock_guard<std::mutex> lock(mutex_);
    --running_;
  }
  work(stop);
  await_others(stop);
  for (std::thread& other : others) other.join();
}

bool SharedTasks::take(size_t* task) {
  if (ended_.load(std::memory_order_relaxed)) return false;
  *task = next_.fetch_add(1, std::memory_order_relaxed);
  return *task < count_;
}

void SharedTasks::work_beside(const Work& work) {
  Stopper stop;
  stop.wanted = &ended_;
  stop.poll = [](void* of) {
    static_cast<SharedTasks*>(of)->done_.notify_one();
    return false;
  };
  stop.of = this;
  work(&stop);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--running_ == 0) done_.notify_one();
}

// Until the other threads are done. They wake this one now and then, to look whether the call is to
// end.
void SharedTasks::await_others(Stopper* stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (running_) {
    done_.wait(lock);
    lock.unlock();
    if (should_stop(stop, UINT64_MAX / 4)) end();
    lock.lock();
  }
}

}  // namespace fpstore
