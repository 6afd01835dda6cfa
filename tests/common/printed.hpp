#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace toy {

/// What `run` prints on standard output.
template <class Run>
std::string printed(Run run) {
  std::fflush(stdout);
  std::FILE* file = std::tmpfile();
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(::fileno(file), STDOUT_FILENO);
  const struct PutBack {
    int descriptor;
    ~PutBack() {
      std::fflush(stdout);
      ::dup2(descriptor, STDOUT_FILENO);
      ::close(descriptor);
    }
  } put_back{before};
  run();
  std::fflush(stdout);
  std::rewind(file);
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;)
    text.append(buffer.data(), n);
  std::fclose(file);
  return text;
}

}  // namespace toy
