#pragma once

#include <cstdint>
#include <utility>

#include "etude/loop/core.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/speed.hpp"

namespace etude::inline v0 {

/// The last log of a training: its speed, its mean loss, and the values that are still to be logged.
template <class Events>
class TrainingSummary {
 public:
  explicit TrainingSummary(Events& events) : events_(events), core_(events.core()) {}

  void begin() { first_step_ = core_.state.global_step; }
  /// An update has seen this many examples, a shorter last batch counted in full.
  void add_examples(double examples) { examples_ += examples; }

  /// Logs it once, however the training ends.
  void log() {
    if (!metrics_.empty()) return;
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::logging);
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
  const Metrics& metrics() const { return metrics_; }

 private:
  /// The examples seen in `steps` updates, according to the plan: a shorter last batch counts in full.
  double examples(std::int64_t steps) const {
    if (core_.accumulation.varies()) return examples_;
    return core_.padded(steps) * static_cast<double>(core_.args.gradient_accumulation_steps);
  }

  Events& events_;
  TrainerCore& core_;
  std::int64_t first_step_ = 0;
  double examples_ = 0;
  Metrics metrics_;
};

}  // namespace etude::inline v0
