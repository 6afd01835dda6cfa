#pragma once

#include <pthread.h>
#include <signal.h>

namespace etude::inline v0::detail {

/// Blocks SIGPIPE in this thread while it lives, and for good in the threads that it starts: a closed pipe or
/// connection must not end a training.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    was_pending_ = is_pending();
    if (!was_pending_) pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    if (was_pending_) return;  // Already blocked, and not ours to consume.
    int signal = 0;
    if (is_pending()) sigwait(&pipe_, &signal);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t pipe_, before_;
  bool was_pending_;
};

}  // namespace etude::inline v0::detail
