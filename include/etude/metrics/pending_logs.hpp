#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/metrics/metrics.hpp"
#include "etude/metrics/running_mean.hpp"

namespace etude {

/// What callbacks have logged since the last log, each name with its mean, in the order of their first
/// mention.
class PendingLogs {
 public:
  template <class Value>
  void add(std::string_view name, const Value& value) {
    for (auto& [known, mean] : means_)
      if (known == name) return mean.add(value);
    means_.emplace_back(std::string(name), RunningMean()).second.add(value);
  }

  /// Adds what others have logged.
  void merge(PendingLogs other) {
    for (auto& [name, mean] : other.means_) add(name, mean.mean());
  }

  /// Moves everything into `logs`; a name that is there already is overwritten.
  void take_into(Metrics& logs) {
    for (auto& [name, mean] : std::exchange(means_, {})) logs[name] = mean.mean();
  }

 private:
  std::vector<std::pair<std::string, RunningMean>> means_;
};

}  // namespace etude
