#pragma once

#include <filesystem>
#include <optional>

namespace etude {

/// The cores that Linux's control groups leave to this process, a fraction perhaps; nothing where they set no
/// limit. `root` is where /proc and /sys are.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// How many cores this process may keep busy: those that it may run on, and no more than its `cpu_quota`
/// rounded up.
int usable_cores();

/// Keeps LibTorch from using more threads than there are cores for them, as it does in a container with a
/// quota: each operator would wait for threads that wait for a core. Fewer stay fewer. The destructor gives
/// back what was.
class ThreadGuard {
 public:
  ThreadGuard();
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;
  ~ThreadGuard();

 private:
  int before_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/threads.ipp"
#endif
