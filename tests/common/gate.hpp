#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace toy {

/// Something that one thread waits for and another does. Gives up after a time, so that a test can fail.
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
