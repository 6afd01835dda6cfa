#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"

namespace etude {

/// "SIGTERM", "SIGINT".
constexpr std::string_view signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "a signal";
}

/// Thrown inside a training at the first safe point after SIGTERM or SIGINT. It comes out of `train()` only
/// where the handler that the program itself has for the signal returns.
struct Interrupted : Error {
  explicit Interrupted(int signal_) : Error(std::string(signal_name(signal_))), signal(signal_) {}
  int signal;
};

/// Takes note of SIGTERM and SIGINT while it lives, for `throw_if_interrupted` to act upon; a second one ends
/// the process at once. What the program ignores stays ignored, and its handlers are back when the last of
/// these objects is gone. In a child made by fork(), which none of these trainings goes on in, a signal takes
/// the course that the program has given it.
class SignalGuard {
 public:
  explicit SignalGuard(bool on);
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard();

  /// Gives the program its handlers back, and what came to them.
  void restore();

  /// The same, for a training that has answered `signal`. Where that ends the process, it waits for the
  /// trainings of other threads, which answer it too, but not longer than 10 seconds: one of them may be
  /// waiting for this thread.
  void restore_with_others(int signal);

  /// The signal that came, or 0.
  static int came() noexcept { return pending().load(std::memory_order_relaxed); }

 private:
  static void note(int signal);

  static std::atomic<int>& pending() {
    static_assert(std::atomic<int>::is_always_lock_free, "it is written in a signal handler");
    static std::atomic<int> signal = 0;
    return signal;
  }
  /// The process whose trainings look out for signals.
  static std::atomic<pid_t>& owner() {
    static_assert(std::atomic<pid_t>::is_always_lock_free, "it is read in a signal handler");
    static std::atomic<pid_t> process = 0;
    return process;
  }
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static int& users() {
    static int count = 0;
    return count;
  }
  static int& users_in_thread() {
    thread_local int count = 0;
    return count;
  }
  using Actions = std::array<std::pair<int, struct sigaction>, 2>;
  static Actions& previous() {
    static Actions actions{{{SIGTERM, {}}, {SIGINT, {}}}};
    return actions;
  }

  bool on_;
};

/// Whether a training that stops for `reason` (of the event `Stop`) stops for a signal: unless the
/// program has a handler for it, the process ends behind `TrainEnd`, without destructors.
inline bool stops_for_signal(std::string_view reason) {
  const int signal = SignalGuard::came();
  return signal != 0 && reason == signal_name(signal);
}

/// Throws `Interrupted` after a signal that a training looks out for.
inline void throw_if_interrupted() {
  if (const int signal = SignalGuard::came()) throw Interrupted(signal);
}

/// While it lives, this thread is in something long that a training can give up (or, with false, in something
/// that it can't).
class InterruptionScope {
 public:
  explicit InterruptionScope(bool may) : before_(std::exchange(flag(), may)) {}
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;
  ~InterruptionScope() { flag() = before_; }

  static bool may() { return flag(); }

 private:
  static bool& flag() {
    thread_local bool may = false;
    return may;
  }
  bool before_;
};

/// For what may take long: `throw_if_interrupted`, where that does no harm.
inline void interruption_point() {
  if (InterruptionScope::may()) throw_if_interrupted();
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/base/impl/interrupt.ipp"
#endif
