#pragma once

#include <ATen/Parallel.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "etude/base/interrupt.hpp"
#include "etude/data/dataset.hpp"
#include "etude/data/failed_example.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0::detail {

/// Single-core threads that run jobs in order, each with its own dataset. The destructor drops queued jobs
/// and waits `patience_with_threads` for running ones. A thread that is still stuck after that is abandoned:
/// it owns its dataset and its job, and frees them if the job ever returns.
class WorkerPool {
 public:
  using Work = std::function<std::optional<Batch>(Dataset&)>;
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr error;
    bool ready = false;
    FailedExample failed_example = {};
  };

  explicit WorkerPool(std::vector<Dataset> datasets);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() { stop(); }

  /// Runs `work` on the next free thread. `work` may outlive the pool, so it must own everything it uses.
  std::shared_ptr<Result> submit(Work work);

  /// Waits for a result and takes it; rethrows the exception of its work, or throws `Interrupted` if the
  /// training is interrupted.
  std::optional<Batch> take(Result& result);

  /// Ends the threads and returns the datasets, except the datasets of abandoned threads.
  std::vector<Dataset> stop();

 private:
  struct Job {
    Work work;
    std::shared_ptr<Result> result;
  };
  struct Worker {
    Dataset dataset;
    bool has_ended = false;
  };

  // Shared by the pool and its threads.
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake, changed;
    std::deque<Job> jobs;
    std::vector<Worker> workers;
    std::size_t started = 0;
    bool stops = false;

    void run(Worker& worker);

    void fetch(const Job& job, Dataset& dataset);
  };

  void require_threads() const;

  ForkMark mark_;
  std::shared_ptr<Shared> shared_{new Shared, DeleteUnlessForked()};
  ThreadShared<std::vector<std::thread>> threads_ = make_thread_shared<std::vector<std::thread>>();
};

}  // namespace etude::inline v0::detail
