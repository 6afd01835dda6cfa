#pragma once

#include <signal.h>

#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

/// "SIGTERM", "SIGINT".
constexpr std::string_view signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "a signal";
}

/// Thrown inside a training at the first safe point after SIGTERM or SIGINT. It leaves `train()` only if the
/// program's own handler for the signal returns.
struct Interrupted : Error {
  explicit Interrupted(int signal_) : Error(std::string(signal_name(signal_))), signal(signal_) {}
  int signal;
};

/// While it lives, records SIGTERM and SIGINT for `throw_if_interrupted`; a second signal ends the process at
/// once. Signals that the program ignores stay ignored, and the last of these objects restores the program's
/// handlers. A child made by fork() doesn't continue the training, so signals there go to the program's
/// handlers.
class SignalGuard {
 public:
  explicit SignalGuard(bool on);
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard();

  /// Restores the program's handlers and delivers the signals received meanwhile.
  void restore();

  /// Like `restore`, for a training that has handled `signal`. If the signal ends the process, it first waits
  /// for trainings in other threads, which handle it too; at most 10 seconds, since one of them may be
  /// waiting for this thread.
  void restore_with_others(int signal);

  /// Handles a signal that another process of the training has received. This process may receive it, too.
  static void adopt(int signal);

  /// Acts as if `signal` had arrived. If it also arrives, perhaps from the terminal, it doesn't count as a
  /// second signal, which would end the process at once.
  static void receive(int signal);

  /// The signal received or adopted, or 0.
  static int came() noexcept;

 private:
  bool on_;
  std::thread::id thread_;  // the thread that constructed it
};

/// Whether `reason` (of the event `Stop`) means that a signal stopped the training. Unless the program
/// handles that signal, the process ends after `TrainEnd`, without running destructors.
bool stops_for_signal(std::string_view reason);

/// Throws `Interrupted` after a signal that a training handles.
inline void throw_if_interrupted() {
  if (const int signal = SignalGuard::came()) throw Interrupted(signal);
}

/// While it lives, this thread is inside a long operation that may be interrupted (or, with false, one that
/// must not be interrupted).
class InterruptionScope {
 public:
  explicit InterruptionScope(bool may) : before_(std::exchange(flag(), may)) {}
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;
  ~InterruptionScope() { flag() = before_; }

  static bool may() { return flag(); }

 private:
  static bool& flag();
  bool before_;
};

/// Call this in long operations: it calls `throw_if_interrupted` where interrupting is safe.
inline void interruption_point() {
  if (InterruptionScope::may()) throw_if_interrupted();
}

}  // namespace etude::inline v0
