#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "etude/base/function_ref.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// Pauses and ends a training from other threads. Each method may be called from any thread at any time; the
/// training checks at the end of each step, at the cost of reading a number.
class RemoteControl {
 public:
  /// The training waits before its next step, or before its first if none is under way.
  void pause();
  void resume();
  bool is_paused() const noexcept { return (asked_.load(std::memory_order_acquire) & paused) != 0; }

  /// Asks the training under way to stop, even if it is paused. Returns false if there is none.
  bool cancel(std::string_view reason);

  /// A training is under way while this lives. A request to stop that comes too late is forgotten.
  class UnderWay {
   public:
    explicit UnderWay(RemoteControl& remote) : remote_(remote) { remote_.set_under_way(true); }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    ~UnderWay() { remote_.set_under_way(false); }

   private:
    RemoteControl& remote_;
  };

  /// Called by the training. Waits while it is paused, unless it is cancelled or `ends_wait` becomes true.
  void wait_while_paused(detail::FunctionRef<bool()> ends_wait);

  /// Called by the training. Adds a request to stop, if there is one, to `control`.
  void take_cancel(TrainerControl& control) {
    if ((asked_.load(std::memory_order_relaxed) & cancelled) != 0) move_cancel_to(control);
  }

 private:
  void set_under_way(bool is);
  void move_cancel_to(TrainerControl& control);

  static constexpr int paused = 1, cancelled = 2;

  std::atomic<int> asked_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string reason_;
  bool is_under_way_ = false;
};

}  // namespace etude::inline v0
