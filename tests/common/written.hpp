#pragma once

#include <doctest/doctest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/variables.hpp"

namespace toy {

/// The output of `run` on standard error, in a terminal with this many columns or, if 0, in a pipe.
inline std::string written(unsigned short columns, const std::function<void(int terminal)>& run,
                           const char* no_color = "1") {
  const Variable color("NO_COLOR", no_color), locale("LC_ALL", "C.UTF-8");
  std::array<int, 2> ends{};  // 0 is read, 1 written
  if (columns > 0) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(openpty(&ends[0], &ends[1], nullptr, nullptr, &size) == 0);
  } else {
    REQUIRE(pipe(ends.data()) == 0);
  }
  std::fflush(stdout);
  std::fflush(stderr);
  const int saved_out = dup(STDOUT_FILENO), saved_error = dup(STDERR_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string text;
  std::thread reader([&] {
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
      if (text.find('\x04') != text.npos) break;
    }
  });
  try {
    run(ends[1]);
  } catch (const std::runtime_error&) {
  }
  std::fflush(stdout);
  std::fflush(stderr);
  REQUIRE(write(ends[1], "\x04", 1) == 1);
  reader.join();
  dup2(saved_out, STDOUT_FILENO);
  dup2(saved_error, STDERR_FILENO);
  for (const int end : {ends[0], ends[1], saved_out, saved_error}) close(end);
  text.erase(text.find('\x04'));
  return text;
}

}  // namespace toy
