#pragma once

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "etude/checkpoint/background.hpp"

namespace etude {
namespace detail {

// How many run in this process.
struct RunningJobs {
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

inline RunningJobs& running_jobs() {
  // Never destroyed: `exit` destroys statics while a thread may still be at work.
  static RunningJobs& instance = *new RunningJobs;
  [[maybe_unused]] static const int registered = std::atexit([] { running_jobs().wait(); });
  return instance;
}

}  // namespace detail

ETUDE_INLINE BackgroundJob::~BackgroundJob() { join(); }

ETUDE_INLINE void BackgroundJob::start(std::function<void()> job) {
  wait();
  detail::running_jobs().begin();
  done_ = false;
  try {
    thread_ = std::thread([this, job = std::move(job)]() mutable { run(job); });
  } catch (...) {
    detail::running_jobs().end();
    throw;
  }
}

ETUDE_INLINE bool BackgroundJob::has_ended() {
  if (!thread_.joinable()) return false;
  const std::lock_guard lock(mutex_);
  return done_;
}

ETUDE_INLINE void BackgroundJob::wait() {
  join();
  if (auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

ETUDE_INLINE void BackgroundJob::run(std::function<void()>& job) {
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
  detail::running_jobs().end();
}

ETUDE_INLINE void BackgroundJob::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace etude
