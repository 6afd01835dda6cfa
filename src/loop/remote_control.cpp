#include "etude/loop/remote_control.hpp"

#include <chrono>

namespace etude::inline v0 {

void RemoteControl::pause() {
  const std::lock_guard lock(mutex_);
  asked_ |= paused;
}

void RemoteControl::resume() {
  {
    const std::lock_guard lock(mutex_);
    asked_ &= ~paused;
  }
  changed_.notify_all();
}

bool RemoteControl::cancel(std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_under_way_) return false;
    if ((asked_ & cancelled) == 0) reason_ = reason;
    asked_ |= cancelled;
  }
  changed_.notify_all();
  return true;
}

void RemoteControl::wait_while_paused(detail::FunctionRef<bool()> ends_wait) {
  if (!is_paused()) return;
  std::unique_lock lock(mutex_);
  // Polls, because a signal handler must not notify.
  while (asked_ == paused && !ends_wait()) changed_.wait_for(lock, std::chrono::milliseconds(50));
}

void RemoteControl::set_under_way(bool is) {
  const std::lock_guard lock(mutex_);
  is_under_way_ = is;
  asked_ &= ~cancelled;
}

void RemoteControl::move_cancel_to(TrainerControl& control) {
  const std::lock_guard lock(mutex_);
  asked_ &= ~cancelled;
  control.request_stop(reason_);
}

}  // namespace etude::inline v0
