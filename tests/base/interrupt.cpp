#include "etude/base/interrupt.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace base_interrupt_test {

/// The wait status of a child that runs `body`.
template <class Body>
int status_of_child(Body body) {
  const auto child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("a second signal ends the process at once") {
  const auto status = status_of_child([] {
    const etude::SignalGuard guard(true);
    ::raise(SIGINT);
    ::raise(SIGTERM);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE(
    "a signal of the parent isn't a second one, whether it comes before or after that of the terminal") {
  const auto status = status_of_child([] {
    const etude::SignalGuard guard(true);
    etude::SignalGuard::receive(SIGTERM);
    if (etude::SignalGuard::came() != SIGTERM) ::_exit(1);
    ::raise(SIGINT);
    etude::SignalGuard::receive(SIGTERM);
    if (etude::SignalGuard::came() != SIGINT) ::_exit(2);
    ::_exit(3);  // it continues
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
}

TEST_CASE("a signal of the parent ends a process that handles none") {
  const auto status = status_of_child([] { etude::SignalGuard::receive(SIGTERM); });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

}  // namespace base_interrupt_test
