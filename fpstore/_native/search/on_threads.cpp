#include "search/on_threads.hpp"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "search/results.hpp"

namespace fpstore {

namespace {

constexpr uint64_t kThreadLookups = 1 << 10;  // fewer are not worth another thread

// The look-ups of some queries in one table, and what came of them.
struct Task {
  unsigned table;
  size_t first, count;
  Sink sink;
  ProbeCounters counters;
  Fault fault;
  Status status = Status::ok;
};

// The tasks of a probe, which threads take one by one.
class SharedProbe {
 public:
  SharedProbe(const Kernels& kernels, unsigned words, const TableProbes& tables, const Queries& queries, const ProbeOptions& options)
      : kernels_(kernels), words_(words), tables_(tables), queries_(queries), options_(options) {}
  ~SharedProbe() {
    for (Task& task : tasks_) release(&task.sink);
  }
  SharedProbe(const SharedProbe&) = delete;
  SharedProbe& operator=(const SharedProbe&) = delete;

  void cut(unsigned slices, uint64_t limit) {
    for (unsigned table = tables_.first; table < tables_.end; ++table)
      for (unsigned s = 0; s < slices; ++s) {
        const size_t first = queries_.count * s / slices, end = queries_.count * (s + 1) / slices;
        Task& task = tasks_.emplace_back();
        task.table = table;
        task.first = first;
        task.count = end - first;
        task.sink.limit = limit;
      }
  }

  // On this thread and others, until no task is left.
  void run(unsigned threads) {
    if (threads > tasks_.size()) threads = static_cast<unsigned>(tasks_.size());
    std::vector<std::thread> others;
    others.reserve(threads - 1);
    try {
      for (unsigned i = 1; i < threads; ++i) {
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          ++running_;
        }
        others.emplace_back([this] { work_beside(); });
      }
    } catch (const std::exception&) {
      // The system has no more threads, or memory for one: those that run do the work.
      const std::lock_guard<std::mutex> lock(mutex_);
      --running_;
    }
    work(options_.stop);
    await_others();
    for (std::thread& other : others) other.join();
  }

  // Puts the matches of all tasks into one sink; the fault is that of the first task that has one.
  Status collect(Sink* sink, ProbeCounters* counters, Fault* fault) {
    if (options_.stop && options_.stop->ended) return (*fault = Fault{Status::interrupted}).status;
    for (Task& task : tasks_) {
      counters->blocks += task.counters.blocks;
      counters->candidates += task.counters.candidates;
      counters->fetches += task.counters.fetches;
      const bool fits = append(sink, task.sink, words_, static_cast<uint32_t>(task.first));
      release(&task.sink);
      if (!fits) {
        *fault = Fault{Status::out_of_memory};
      } else if (task.status == Status::ok || task.status == Status::interrupted) {  // because of a fault of another
        continue;
      } else {
        *fault = task.fault;
      }
      fault->table = task.table;
      return fault->status;
    }
    return Status::ok;
  }

 private:
  void work(Stopper* stop) {
    Scratch scratch{};
    const std::unique_ptr<Scratch, void (*)(Scratch*)> held(&scratch, release);
    for (;;) {
      const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= tasks_.size() || ended_.load(std::memory_order_relaxed)) return;
      Task& task = tasks_[i];
      ProbeOptions options = options_;
      options.stop = stop;
      options.scratch = &scratch;
      const Queries queries{queries_.words + task.first * words_, task.count};
      task.status = kernels_.probe({tables_.probes, task.table, task.table + 1}, queries, options, &task.sink, &task.counters, &task.fault);
      const uint64_t found = found_.fetch_add(task.sink.count, std::memory_order_relaxed) + task.sink.count;
      if (task.status != Status::ok || found > task.sink.limit) ended_.store(true, std::memory_order_relaxed);
    }
  }

  void work_beside() {
    Stopper stop;
    stop.wanted = &ended_;
    stop.poll = [](void* of) {
      static_cast<SharedProbe*>(of)->done_.notify_one();
      return false;
    };
    stop.of = this;
    work(&stop);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--running_ == 0) done_.notify_one();
  }

  // Until the other threads are done. They wake this one now and then, to look whether the call is to end.
  void await_others() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (running_) {
      done_.wait(lock);
      lock.unlock();
      if (should_stop(options_.stop, UINT64_MAX / 4)) ended_.store(true, std::memory_order_relaxed);
      lock.lock();
    }
  }

  const Kernels& kernels_;
  const unsigned words_;
  const TableProbes& tables_;
  const Queries& queries_;
  const ProbeOptions& options_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> found_{0};  // matches
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable done_;
  unsigned running_ = 0;
};

// Into how many parts the queries are cut, so that threads which take the parts of all tables one by one are busy to the end.
unsigned slices_of(unsigned tables, unsigned threads) {
  for (unsigned slices = 1;; ++slices) {
    const unsigned tasks = tables * slices, rounds = (tasks + threads - 1) / threads;
    if (5 * rounds * threads <= 6 * tasks) return slices;
  }
}

}  // namespace

Status probe_on_threads(const Kernels& kernels, unsigned words, const TableProbes& tables, const Queries& queries, const ProbeOptions& options,
                        unsigned threads, Sink* sink, ProbeCounters* counters, Fault* fault) {
  uint64_t lookups = 0;
  for (unsigned i = tables.first; i < tables.end; ++i) lookups += tables.probes[i].variant_count * queries.count;
  if (threads > lookups / kThreadLookups) threads = static_cast<unsigned>(lookups / kThreadLookups);
  if (threads < 2) return kernels.probe(tables, queries, options, sink, counters, fault);
  SharedProbe shared(kernels, words, tables, queries, options);
  shared.cut(slices_of(tables.end - tables.first, threads), sink->limit);
  shared.run(threads);
  return shared.collect(sink, counters, fault);
}

}  // namespace fpstore
