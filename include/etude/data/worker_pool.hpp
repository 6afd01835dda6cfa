#pragma once

#include <ATen/Parallel.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "etude/data/dataset.hpp"

namespace etude::detail {

/// Threads that run jobs in the order given, each with a dataset of its own and on one core. The destructor
/// drops the jobs that wait and joins; it takes no longer than the jobs that are running.
class WorkerPool {
 public:
  explicit WorkerPool(std::vector<Dataset> datasets) : datasets_(std::move(datasets)) {
    const int threads = at::get_num_threads();
    for (auto& dataset : datasets_) {
      threads_.emplace_back([this, &dataset](const std::stop_token& stop) {
        at::get_num_threads();  // LibTorch sets a thread's number at its first use, and must not do so after
                                // us
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

  std::future<std::optional<Batch>> submit(std::function<std::optional<Batch>(Dataset&)> work) {
    Job job(std::move(work));
    auto result = job.get_future();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
    return result;
  }

  /// Ends the threads and hands the datasets back.
  std::vector<Dataset> stop() {
    threads_.clear();
    return std::exchange(datasets_, {});
  }

 private:
  using Job = std::packaged_task<std::optional<Batch>(Dataset&)>;

  void run(Dataset& dataset, const std::stop_token& stop) {
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        if (!wake_.wait(lock, stop, [&] { return !jobs_.empty(); }) || stop.stop_requested()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job(dataset);
    }
  }

  std::vector<Dataset> datasets_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Job> jobs_;
  std::atomic<std::size_t> started_ = 0;
  std::vector<std::jthread> threads_;  // last, so that they end before what they use
};

}  // namespace etude::detail
