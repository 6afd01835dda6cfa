#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace etude {

/// The cores that Linux's control groups leave to this process, a fraction perhaps; nothing where they set no
/// limit. `root` is where /proc and /sys are.
inline std::optional<double> cpu_quota(const std::filesystem::path& root = "/") {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  };
  const auto number = [](const std::filesystem::path& file) {
    double value = 0;
    std::ifstream(file) >> value;  // "max" is no number, and no limit
    return value;
  };
  const auto groups = root / "sys/fs/cgroup";
  std::ifstream memberships(root / "proc/self/cgroup");
  for (std::string line; std::getline(memberships, line);) {
    // "hierarchy:controllers:/path"; version 2 is hierarchy 0, without controllers. Each folder above limits
    // too.
    std::istringstream fields(line);
    std::string hierarchy, controllers, path;
    std::getline(fields, hierarchy, ':'), std::getline(fields, controllers, ':'), std::getline(fields, path);
    const bool is_second = hierarchy == "0" && controllers.empty();
    if (!is_second && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const auto top = is_second ? groups : groups / "cpu";
    for (auto group = std::filesystem::path(path).relative_path();; group = group.parent_path()) {
      if (is_second) {
        double quota = 0, period = 0;
        std::ifstream(top / group / "cpu.max") >> quota >> period;
        take(quota, period);
      } else {
        take(number(top / group / "cpu.cfs_quota_us"), number(top / group / "cpu.cfs_period_us"));
      }
      if (group.empty()) break;
    }
  }
  return least;
}

/// How many cores this process may keep busy: those that it may run on, and no more than its `cpu_quota`
/// rounded up.
inline int usable_cores() {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cores = std::max(1, CPU_COUNT(&mask));
#endif
  if (const auto quota = cpu_quota())
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(*quota))));
  return cores;
}

/// Keeps LibTorch from using more threads than there are cores for them, as it does in a container with a
/// quota: each operator would wait for threads that wait for a core. Fewer stay fewer. The destructor gives
/// back what was.
class ThreadGuard {
 public:
  ThreadGuard() {
    static const int cores = usable_cores();
    if (before_ > cores) at::set_num_threads(cores);
  }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;
  ~ThreadGuard() {
    if (at::get_num_threads() != before_) at::set_num_threads(before_);
  }

 private:
  int before_ = at::get_num_threads();
};

}  // namespace etude
