#include "etude/libtorch/threads.hpp"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace etude::inline v0 {

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  };
  const auto number = [](const std::filesystem::path& file) {
    double value = 0;
    std::ifstream(file) >> value;  // "max" doesn't parse: no limit
    return value;
  };
  const auto groups = root / "sys/fs/cgroup";
  std::ifstream memberships(root / "proc/self/cgroup");
  for (std::string line; std::getline(memberships, line);) {
    // "hierarchy:controllers:/path"; version 2 is hierarchy 0, without controllers. Parent folders impose
    // limits too.
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

int usable_cores() {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cores = std::max(1, CPU_COUNT(&mask));
#endif
  if (const auto quota = cpu_quota())
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(*quota))));
  return cores;
}

ThreadGuard::ThreadGuard() : before_(at::get_num_threads()) {
  static const int cores = usable_cores();
  if (before_ > cores) at::set_num_threads(cores);
}

ThreadGuard::~ThreadGuard() {
  if (at::get_num_threads() != before_) at::set_num_threads(before_);
}

}  // namespace etude::inline v0
