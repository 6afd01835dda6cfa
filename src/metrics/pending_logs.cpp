#include "etude/metrics/pending_logs.hpp"

namespace etude::inline v0 {

void PendingLogs::merge(PendingLogs other) {
  for (auto& [name, mean] : other.means_)
    if (const double weight = mean.weight(); weight != 0) add(name, mean.mean(), weight);
}

void PendingLogs::take_into(Metrics& logs) {
  for (auto& [name, mean] : std::exchange(means_, {})) logs[name] = mean.mean();
}

std::vector<PendingLogState> PendingLogs::state() {
  std::vector<PendingLogState> result;
  for (auto& [name, mean] : means_) result.push_back({name, mean.state()});
  return result;
}

void PendingLogs::load_state(const std::vector<PendingLogState>& state) {
  means_.clear();
  for (const auto& [name, mean] : state) means_.emplace_back(name, RunningMean()).second.load_state(mean);
}

}  // namespace etude::inline v0
