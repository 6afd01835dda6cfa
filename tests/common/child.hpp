#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

namespace toy {

/// ThreadSanitizer ends a child that starts a thread if its parent has threads, because it takes those for
/// the child's.
#ifdef __SANITIZE_THREAD__
inline constexpr bool child_can_start_threads = false;
#elif defined(__has_feature)
inline constexpr bool child_can_start_threads = !__has_feature(thread_sanitizer);
#else
inline constexpr bool child_can_start_threads = true;
#endif

/// How a child process ended: "exit 0", "signal 15", or "never" if it was killed after `limit`.
inline std::string end_of(pid_t child, std::chrono::seconds limit = std::chrono::minutes(1)) {
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return "never";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit " + std::to_string(WEXITSTATUS(status));
}

/// Runs `body` in a child process, which exits with the returned status, and returns how the child ended.
template <class Body>
std::string end_of_child(Body body) {
  std::fflush(nullptr);
  const auto child = ::fork();
  if (child != 0) return end_of(child);
  try {
    ::_exit(body());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a child process threw: %s\n", error.what());
    ::_exit(97);
  }
}

}  // namespace toy
