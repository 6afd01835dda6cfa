#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

namespace toy {

/// Discards standard output and error while it lives.
class Silence {
 public:
  Silence() {
    std::fflush(nullptr);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, stream);
    close(nowhere);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  ~Silence() {
    std::fflush(nullptr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      dup2(saved_.at(static_cast<std::size_t>(stream - STDOUT_FILENO)), stream);
      close(saved_.at(static_cast<std::size_t>(stream - STDOUT_FILENO)));
    }
  }

 private:
  std::array<int, 2> saved_{dup(STDOUT_FILENO), dup(STDERR_FILENO)};
};

}  // namespace toy
