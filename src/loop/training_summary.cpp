#include "training_summary.hpp"

#include <utility>

#include "etude/metrics/speed.hpp"

namespace etude::inline v0 {

void TrainingSummary::log() {
  if (!metrics_.empty()) return;
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::logging);
  const auto steps = core_.state.global_step - first_step_;
  auto& window = core_.log_window;
  if (window.has_steps(core_.state.global_step)) window.take_loss(core_.state.global_step);
  metrics_ = speed_metrics("train", window.clock_start(), examples(steps), steps);
  core_.ranks.average(core_.pending_logs, core_.args.logging_by_rank);
  metrics_["total_flos"] = core_.state.total_flos;
  window.sum_up(metrics_, core_.model);
  core_.add_skipped_steps(metrics_);
  auto logs = metrics_;
  events_.trainer().log(logs);
  metrics_ = std::move(logs);
}

double TrainingSummary::examples(std::int64_t steps) const {
  if (core_.accumulation.varies()) return examples_;
  return core_.padded(steps) * static_cast<double>(core_.args.gradient_accumulation_steps);
}

}  // namespace etude::inline v0
