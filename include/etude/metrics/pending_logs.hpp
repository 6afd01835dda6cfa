#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// One name of PendingLogs.
struct PendingLogState {
  ETUDE_STRUCT(PendingLogState, (std::string, name, "what it was logged under"),
               (RunningMeanState, mean, "what it has come to"));
};

/// What callbacks have logged since the last log, each name with its mean, in the order of their first
/// mention.
class PendingLogs {
 public:
  /// Throws DataError for a tensor of more or less than one element, and ArgumentError for a name that is
  /// empty or isn't UTF-8, and keeps nothing of it.
  template <class Value>
  void add(std::string_view name, const Value& value) {
    try {
      for (auto& [known, mean] : means_)
        if (known == name) return mean.add(value);
      detail::check_metric_name(name);
      if (name.empty())
        throw ArgumentError("the name of what is logged is empty: must have a character at least");
      RunningMean mean;
      mean.add(value);
      means_.emplace_back(std::string(name), std::move(mean));
    } catch (const DataError& error) {
      throw DataError("'" + std::string(name) + "': " + error.what());
    }
  }

  /// Adds what others have logged.
  void merge(PendingLogs other);

  /// Moves everything into `logs`; a name that is there already is overwritten.
  void take_into(Metrics& logs);

  std::vector<PendingLogState> state();
  void load_state(const std::vector<PendingLogState>& state);

 private:
  std::vector<std::pair<std::string, RunningMean>> means_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/pending_logs.ipp"
#endif
