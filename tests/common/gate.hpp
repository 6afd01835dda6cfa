#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace toy {

/// Lets one thread wait until another opens it. Waiting times out, so that a test can fail.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace toy
