#pragma once

#include <cstdint>

#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// The last log of a training: its speed, its mean loss, and the values that are still to be logged.
class TrainingSummary {
 public:
  explicit TrainingSummary(EventSource& events) : events_(events), core_(events.core()) {}

  void begin() { first_step_ = core_.state.global_step; }
  /// Adds the number of examples in an update; a shorter last batch counts in full.
  void add_examples(double examples) { examples_ += examples; }

  /// Logs it once, however the training ends.
  void log();
  const Metrics& metrics() const { return metrics_; }

 private:
  /// The examples seen in `steps` updates, according to the plan: a shorter last batch counts in full.
  double examples(std::int64_t steps) const;

  EventSource& events_;
  TrainerCore& core_;
  std::int64_t first_step_ = 0;
  double examples_ = 0;
  Metrics metrics_;
};

}  // namespace etude::inline v0
