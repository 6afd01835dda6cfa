#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "etude/base/linkage.hpp"
#include "etude/io/own_threads.hpp"

namespace etude {

/// Runs one job at a time in a thread of its own. The process doesn't end by `exit` or from `main` while one
/// is running, and neither does this object. A child made by fork() has no part in a job that runs: only the
/// parent ends it.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;
  ~BackgroundJob();

  /// Begins `job`; waits for the one before, and throws what that has thrown.
  void start(std::function<void()> job);

  bool is_running() const { return thread_ != nullptr; }

  /// Whether a job has ended that nobody has waited for yet: `wait` returns at once.
  bool has_ended();

  /// Waits for the job, if any, and throws what it has thrown; in a child made by fork() throws Error, and
  /// forgets the job.
  void wait();

 private:
  void run(std::function<void()>& job);

  detail::ThreadShared<std::thread> thread_;
  std::mutex mutex_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/io/impl/background.ipp"
#endif
