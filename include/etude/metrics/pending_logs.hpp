#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// One entry of PendingLogs.
struct PendingLogState {
  ETUDE_STRUCT(PendingLogState, (std::string, name, "name in the log"),
               (RunningMeanState, mean, "mean of the logged values"));
};

/// The values that callbacks have logged since the last log, averaged by name, in the order of first use.
class PendingLogs {
 public:
  /// Adds a value. Throws DataError for a tensor that doesn't have exactly one element, and ArgumentError for
  /// a name that is empty or isn't UTF-8; nothing is added then.
  template <class Value, class Weight = double>
  void add(std::string_view name, const Value& value, const Weight& weight = 1) {
    try {
      for (auto& [known, mean] : means_)
        if (known == name) return mean.add(value, weight);
      detail::check_metric_name(name);
      if (name.empty())
        throw ArgumentError("the name of a logged value is empty: must have at least one character");
      RunningMean mean;
      mean.add(value, weight);
      means_.emplace_back(std::string(name), std::move(mean));
    } catch (const DataError& error) {
      throw DataError("'" + std::string(name) + "': " + error.what());
    }
  }

  /// Adds all values of `other`.
  void merge(PendingLogs other);

  /// Moves everything into `logs`, overwriting existing entries.
  void take_into(Metrics& logs);

  std::vector<PendingLogState> state();
  void load_state(const std::vector<PendingLogState>& state);

 private:
  std::vector<std::pair<std::string, RunningMean>> means_;
};

}  // namespace etude::inline v0
