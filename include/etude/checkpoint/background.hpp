#pragma once

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace etude {

/// Runs one job at a time in a thread of its own. The process doesn't end by `exit` or from `main` while one
/// is running, and neither does this object.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;
  ~BackgroundJob() { join(); }

  /// Begins `job`; waits for the one before, and throws what that has thrown.
  void start(std::function<void()> job) {
    wait();
    running().begin();
    done_ = false;
    try {
      thread_ = std::thread([this, job = std::move(job)]() mutable { run(job); });
    } catch (...) {
      running().end();
      throw;
    }
  }

  bool is_running() const { return thread_.joinable(); }

  /// Whether a job has ended that nobody has waited for yet: `wait` returns at once.
  bool has_ended() {
    if (!thread_.joinable()) return false;
    const std::lock_guard lock(mutex_);
    return done_;
  }

  /// Waits for the job, if any, and throws what it has thrown.
  void wait() {
    join();
    if (auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

 private:
  // How many run in this process.
  struct Running {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;

    void begin() {
      const std::lock_guard lock(mutex);
      ++count;
    }
    void end() {
      const std::lock_guard lock(mutex);
      --count;
      changed.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return count == 0; });
    }
  };

  static Running& running() {
    // Never destroyed: `exit` destroys statics while a thread may still be at work.
    static Running& instance = *new Running;
    [[maybe_unused]] static const int registered = std::atexit([] { running().wait(); });
    return instance;
  }

  void run(std::function<void()>& job) {
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      done_ = true;
    }
    running().end();
  }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::thread thread_;
  std::mutex mutex_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace etude
