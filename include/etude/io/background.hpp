#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "etude/io/own_threads.hpp"

namespace etude::inline v0 {

/// Runs one job at a time in a separate thread. `exit`, returning from `main` and this object's destructor
/// wait for a running job. A child made by fork() has no running job: only the parent finishes it.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;
  ~BackgroundJob();

  /// Waits for the previous job and rethrows its exception, then starts `job`.
  void start(std::function<void()> job);

  bool is_running() const { return thread_ != nullptr; }

  /// True if a job has finished and `wait` hasn't been called since: `wait` won't block.
  bool has_ended();

  /// Waits for the job, if any, and rethrows its exception. In a child made by fork(), throws Error and
  /// forgets the job.
  void wait();

 private:
  void run(std::function<void()>& job);

  detail::ThreadShared<std::thread> thread_;
  std::mutex mutex_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace etude::inline v0
