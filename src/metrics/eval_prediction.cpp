#include "etude/metrics/eval_prediction.hpp"

#include <vector>

namespace etude::inline v0 {

std::vector<metrics::MetricState> ComputeMetrics::state() const {
  std::vector<metrics::MetricState> result;
  call_({.state = &result});
  return result;
}

}  // namespace etude::inline v0
