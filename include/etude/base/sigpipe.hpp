#pragma once

#include <pthread.h>
#include <signal.h>

namespace etude::inline v0::detail {

/// Blocks SIGPIPE in this thread while it lives, and for good in the threads that it starts: a closed pipe or
/// connection must not end a training.
class WithoutSigpipe {
 public:
  WithoutSigpipe();
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe();

 private:
  static bool is_pending();

  sigset_t pipe_, before_;
  bool was_pending_;
};

}  // namespace etude::inline v0::detail
