#pragma once

#include <filesystem>
#include <optional>

namespace etude::inline v0 {

/// The number of cores, possibly fractional, that Linux's control groups allow this process; unset if
/// unlimited. `root` is the folder that contains /proc and /sys.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// The number of cores that this process may keep busy: the cores in its affinity mask, limited by
/// `cpu_quota` rounded up.
int usable_cores();

/// Keeps LibTorch from using more threads than cores in a container with a CPU quota, where each operator
/// would wait for threads that wait for a core. Never increases the number; the destructor restores it.
class ThreadGuard {
 public:
  ThreadGuard();
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;
  ~ThreadGuard();

 private:
  int before_;
};

}  // namespace etude::inline v0
