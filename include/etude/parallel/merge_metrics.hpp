#pragma once

#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/metrics/streaming_metric.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// The states of a metric in all processes, by rank.
std::vector<std::vector<metrics::MetricState>> gather_states(Communicator& communicator,
                                                             const std::vector<metrics::MetricState>& own);

/// Gives the metric of every process the state of all. Returns whether any of them `has_examples`.
template <metrics::StreamingMetric M>
bool merge_metrics(Communicator& communicator, M& metric, bool has_examples) {
  if (communicator.world_size() == 1) return has_examples;
  const auto states =
      gather_states(communicator, has_examples ? metric.state() : std::vector<metrics::MetricState>());
  metric.reset();
  bool any = false;
  for (const auto& state : states) {
    if (state.empty()) continue;
    auto part = metric;
    part.load_state(state);
    if (any)
      metric.merge(part);
    else
      metric = part;
    any = true;
  }
  return any;
}

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/parallel/impl/merge_metrics.ipp"
#endif
