#include "search/on_threads.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "search/results.hpp"
#include "search/shared_tasks.hpp"

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
  uint64_t place = 0;  // of its first match among all
};

// A probe, cut into tasks that threads share.
class SharedProbe {
 public:
  SharedProbe(const Kernels& kernels, unsigned words, const TableProbes& tables,
              const Queries& queries, const ProbeOptions& options)
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

  void run(unsigned threads) {
    SharedTasks shared(tasks_.size());
    shared.run(threads, options_.stop, [&](Stopper* stop) { probe(&shared, stop); });
  }

  // Puts the matches of all tasks into one sink; the fault is that of the first task that has one.
  Status collect(unsigned threads, Sink* sink, ProbeCounters* counters, Fault* fault) {
    if (options_.stop && options_.stop->ended) return (*fault = Fault{Status::interrupted}).status;
    uint64_t found = sink->count;
    for (Task& task : tasks_) {
      task.place = found;
      found += task.sink.count;
    }
    // The sink of a task may be full, too.
    if (found > sink->limit || (found == sink->limit && ran_out())) return too_many(sink, fault);
    for (const Task& task : tasks_) {
      counters->blocks += task.counters.blocks;
      counters->candidates += task.counters.candidates;
      counters->fetches += task.counters.fetches;
      // A task is interrupted if another one has a fault.
      if (task.status == Status::ok || task.status == Status::interrupted) continue;
      *fault = task.fault;
      fault->table = task.table;
      return fault->status;
    }
    if (!reserve(sink, words_, found)) return (*fault = Fault{Status::out_of_memory}).status;
    SharedTasks shared(tasks_.size());
    shared.run(threads, options_.stop, [&](Stopper* stop) { copy(&shared, stop, *sink); });
    if (options_.stop && options_.stop->ended) return (*fault = Fault{Status::interrupted}).status;
    sink->count = found;
    return Status::ok;
  }

 private:
  void probe(SharedTasks* shared, Stopper* stop) {
    Scratch scratch{};
    const std::unique_ptr<Scratch, void (*)(Scratch*)> held(&scratch, release);
    for (size_t i; shared->take(&i);) {
      Task& task = tasks_[i];
      ProbeOptions options = options_;
      options.stop = stop;
      options.scratch = &scratch;
      const Queries queries{queries_.words + task.first * words_, task.count};
      task.status = kernels_.probe({tables_.probes, task.table, task.table + 1}, queries, options,
                                   &task.sink, &task.counters, &task.fault);
      const uint64_t found =
          found_.fetch_add(task.sink.count, std::memory_order_relaxed) + task.sink.count;
      if (task.status != Status::ok || found > task.sink.limit) shared->end();
    }
  }

  // To their places in another sink.
  void copy(SharedTasks* shared, Stopper* stop, const Sink& to) {
    for (size_t i; shared->take(&i);) {
      Task& task = tasks_[i];
      if (should_stop(stop, task.sink.count)) return shared->end();
      copy_matches(task.sink, words_, static_cast<uint32_t>(task.first), task.place, to);
      release(&task.sink);
    }
  }

  bool ran_out() const {
    return std::any_of(tasks_.begin(), tasks_.end(),
                       [](const Task& task) { return task.status == Status::out_of_memory; });
  }

  static Status too_many(Sink* sink, Fault* fault) {
    sink->count = sink->limit;
    return (*fault = Fault{Status::out_of_memory}).status;
  }

  const Kernels& kernels_;
  const unsigned words_;
  const TableProbes& tables_;
  const Queries& queries_;
  const ProbeOptions& options_;
  std::vector<Task> tasks_;
  std::atomic<uint64_t> found_{0};  // matches
};

// Into how many parts the queries are cut, so that threads which take the parts of all tables one
// by one are busy to the end.
unsigned slices_of(unsigned tables, unsigned threads) {
  for (unsigned slices = 1;; ++slices) {
    const unsigned tasks = tables * slices, rounds = (tasks + threads - 1) / threads;
    if (5 * rounds * threads <= 6 * tasks) return slices;
  }
}

}  // namespace

Status probe_on_threads(const Kernels& kernels, unsigned words, const TableProbes& tables,
                        const Queries& queries, const ProbeOptions& options, unsigned threads,
                        Sink* sink, ProbeCounters* counters, Fault* fault) {
  uint64_t lookups = 0;
  for (unsigned i = tables.first; i < tables.end; ++i)
    lookups += tables.probes[i].variant_count * queries.count;
  if (threads > lookups / kThreadLookups) threads = static_cast<unsigned>(lookups / kThreadLookups);
  if (threads < 2) return kernels.probe(tables, queries, options, sink, counters, fault);
  SharedProbe shared(kernels, words, tables, queries, options);
  shared.cut(slices_of(tables.end - tables.first, threads), sink->limit);
  shared.run(threads);
  return shared.collect(threads, sink, counters, fault);
}

}  // namespace fpstore
