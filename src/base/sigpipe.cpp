#include "etude/base/sigpipe.hpp"

namespace etude::inline v0::detail {

WithoutSigpipe::WithoutSigpipe() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  was_pending_ = is_pending();
  if (!was_pending_) pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

WithoutSigpipe::~WithoutSigpipe() {
  if (was_pending_) return;  // Already blocked, and not ours to consume.
  int signal = 0;
  if (is_pending()) sigwait(&pipe_, &signal);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool WithoutSigpipe::is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace etude::inline v0::detail
