#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/scheduler_state.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

/// Learning rates that follow a metric. These classes know neither LibTorch nor an optimizer: they change a
/// list of learning rates, one for each parameter group.
namespace etude {

ETUDE_ENUM(MetricMode, min, max);
ETUDE_ENUM(ThresholdMode, rel, abs);

struct ReduceLROnPlateauOptions {
  ETUDE_STRUCT(ReduceLROnPlateauOptions,
               (MetricMode, mode, "whether less or more is better", MetricMode::min),
               (double, factor, "what the learning rate is multiplied with" | above(0).below(1), 0.1),
               (std::int64_t, patience, "evaluations without improvement that are borne", 10),
               (double, threshold, "what counts as an improvement", 1e-4),
               (ThresholdMode, threshold_mode, "threshold relative to the best, or absolute",
                ThresholdMode::rel),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (double, min_lr, "least learning rate", 0.0),
               (double, eps, "smaller changes of the learning rate are not made", 1e-8));
};

struct GreedyLROptions {
  ETUDE_STRUCT(GreedyLROptions, (MetricMode, mode, "whether less or more is better", MetricMode::min),
               (double, factor, "learning rates are multiplied with it, or divided by it" | above(0).below(1),
                0.95),
               (std::int64_t, patience, "evaluations in a row, good or bad, before a change", 10),
               (double, threshold, "what counts as an improvement", 1e-6),
               (ThresholdMode, threshold_mode, "threshold relative to the best, or absolute",
                ThresholdMode::abs),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (std::int64_t, warmup, "evaluations to wait after an increase", 0),
               (double, min_lr, "least learning rate", 1e-3), (double, max_lr, "largest learning rate", 1.0),
               (double, eps, "smaller changes of the learning rate are not made", 1e-8),
               (bool, smooth, "look at the mean of the last metrics", false),
               (std::int64_t, window_size, "how many these are" | at_least(1), 50),
               (std::int64_t, reset_start, "reductions at min_lr before everything starts anew", 500));
};

/// Reduces the learning rates when a metric has stopped improving, as PyTorch's class of that name.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

  void step(double metric, std::vector<double>& lrs);

  SchedulerState state() const;

  /// Throws CheckpointError for a state of another kind or mode, or with impossible numbers; nothing is
  /// changed then.
  void load_state(const SchedulerState& state);

 private:
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0;  // evaluations in a row that were no improvement
  std::int64_t cooldown_ = 0;
};

/// GreedyLR (arXiv 2512.14527) as Hugging Face has it: raises the learning rates while a metric improves,
/// lowers them while it doesn't, and starts anew after a while at the bottom.
class GreedyLR {
 public:
  explicit GreedyLR(const GreedyLROptions& options = {});

  /// `initial_lrs` is what starting anew goes back to.
  void step(double metric, std::vector<double>& lrs, const std::vector<double>& initial_lrs);

  SchedulerState state() const;

  /// As ReduceLROnPlateau's.
  void load_state(const SchedulerState& state);

 private:
  double smoothed(double metric);

  void raise(std::vector<double>& lrs);

  void lower(std::vector<double>& lrs, const std::vector<double>& initial_lrs);

  GreedyLROptions options_;
  double best_;
  std::int64_t good_ = 0;  // improvements in a row
  std::int64_t bad_ = 0;   // evaluations in a row that were none
  std::int64_t cooldown_ = 0;
  std::int64_t warmup_ = 0;
  std::int64_t reset_in_;
  std::deque<double> window_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/metric_schedules.ipp"
#endif
