#pragma once

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "etude/data/dataset.hpp"
#include "etude/interrupt.hpp"

namespace etude::detail {

/// Threads that run jobs in the order given, each with a dataset of its own and on one core. The destructor
/// drops the jobs that wait and joins; it takes no longer than the jobs that are running.
class WorkerPool {
 public:
  using Work = std::function<std::optional<Batch>(Dataset&)>;
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr error;
    bool ready = false;
  };

  explicit WorkerPool(std::vector<Dataset> datasets) : datasets_(std::move(datasets)) {
    const int threads = at::get_num_threads();
    for (auto& dataset : datasets_) {
      threads_.emplace_back([this, &dataset](const std::stop_token& stop) {
        // LibTorch gives a thread the general number at its first use, so let it do that before.
        at::get_num_threads();
        at::set_num_threads(1);
        started_.fetch_add(1);
        started_.notify_one();
        run(dataset, stop);
      });
    }
    for (std::size_t n; (n = started_.load()) < threads_.size();) started_.wait(n);
    // Said in any thread, set_num_threads also decides what later threads start with, and in old LibTorch
    // MKL's threads for all of them. So say again what this thread has.
    at::set_num_threads(threads);
  }

  ~WorkerPool() { stop(); }

  /// Has `work` done by the next thread that is free.
  std::shared_ptr<Result> submit(Work work) {
    auto result = std::make_shared<Result>();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(work), result});
    }
    wake_.notify_one();
    return result;
  }

  /// Waits for a result and takes it; throws what its work has thrown, and `Interrupted` in a training that
  /// is to end.
  std::optional<Batch> take(Result& result) {
    std::unique_lock lock(mutex_);
    // A signal's handler may not notify.
    while (!done_.wait_for(lock, std::chrono::milliseconds(50), [&] { return result.ready; }))
      interruption_point();
    if (result.error) std::rethrow_exception(std::exchange(result.error, nullptr));
    return std::move(result.batch);
  }

  /// Ends the threads and hands the datasets back.
  std::vector<Dataset> stop() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
    return std::exchange(datasets_, {});
  }

 private:
  struct Job {
    Work work;
    std::shared_ptr<Result> result;
  };

  void run(Dataset& dataset, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [&] { return !jobs_.empty(); }) && !stop.stop_requested()) {
      auto [work, result] = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::optional<Batch> batch;
      std::exception_ptr error;
      try {
        batch = work(dataset);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      result->batch = std::move(batch);
      result->error = std::move(error);
      result->ready = true;
      done_.notify_one();
    }
  }

  std::vector<Dataset> datasets_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;
  std::deque<Job> jobs_;
  std::atomic<std::size_t> started_ = 0;
  std::vector<std::jthread> threads_;  // last, so that they end before what they use
};

}  // namespace etude::detail
