#pragma once

#include <string>
#include <vector>

#include "etude/metrics/streaming_metric.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// The states of a metric in all processes, by rank.
std::vector<std::vector<metrics::MetricState>> gather_states(Communicator& communicator,
                                                             const std::vector<metrics::MetricState>& own);

/// Gives each process's metric the merged state of all processes. Returns true if any process `has_examples`.
template <metrics::StreamingMetric M>
bool merge_metrics(Communicator& communicator, M& metric, bool has_examples) {
  if (communicator.world_size() == 1) return has_examples;
  return metrics::load_merged(
      metric,
      gather_states(communicator, has_examples ? metric.state() : std::vector<metrics::MetricState>()));
}

}  // namespace etude::inline v0
