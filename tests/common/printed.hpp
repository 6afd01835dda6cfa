#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace toy {

/// The output of `run` on standard output or standard error.
template <class Run>
std::string printed(Run run, int stream = STDOUT_FILENO) {
  std::fflush(nullptr);
  std::FILE* file = std::tmpfile();
  const int before = ::dup(stream);
  ::dup2(::fileno(file), stream);
  const struct PutBack {
    int descriptor, stream;
    ~PutBack() {
      std::fflush(nullptr);
      ::dup2(descriptor, stream);
      ::close(descriptor);
    }
  } put_back{before, stream};
  run();
  std::fflush(nullptr);
  std::rewind(file);
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;)
    text.append(buffer.data(), n);
  std::fclose(file);
  return text;
}

}  // namespace toy
