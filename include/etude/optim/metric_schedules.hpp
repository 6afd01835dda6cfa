#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "etude/optim/scheduler_state.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

/// Learning rates that follow a metric. These classes depend neither on LibTorch nor on an optimizer: they
/// change a list of learning rates, one per parameter group.
namespace etude::inline v0 {

ETUDE_ENUM(MetricMode, min, max);
ETUDE_ENUM(ThresholdMode, rel, abs);

struct ReduceLROnPlateauOptions {
  ETUDE_STRUCT(ReduceLROnPlateauOptions,
               (MetricMode, mode, "whether lower (min) or higher (max) is better", MetricMode::min),
               (double, factor, "factor for the learning rate" | above(0).below(1), 0.1),
               (std::int64_t, patience, "evaluations without improvement before a reduction", 10),
               (double, threshold, "minimum improvement", 1e-4),
               (ThresholdMode, threshold_mode, "threshold relative to the best (rel), or absolute (abs)",
                ThresholdMode::rel),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (double, min_lr, "minimum learning rate", 0.0),
               (double, eps, "ignore smaller changes of the learning rate", 1e-8));
};

struct GreedyLROptions {
  ETUDE_STRUCT(GreedyLROptions,
               (MetricMode, mode, "whether lower (min) or higher (max) is better", MetricMode::min),
               (double, factor, "learning rates are multiplied or divided by this" | above(0).below(1), 0.95),
               (std::int64_t, patience, "consecutive good or bad evaluations before a change", 10),
               (double, threshold, "minimum improvement", 1e-6),
               (ThresholdMode, threshold_mode, "threshold relative to the best (rel), or absolute (abs)",
                ThresholdMode::abs),
               (std::int64_t, cooldown, "evaluations to wait after a reduction", 0),
               (std::int64_t, warmup, "evaluations to wait after an increase", 0),
               (double, min_lr, "minimum learning rate", 1e-3),
               (double, max_lr, "maximum learning rate", 1.0),
               (double, eps, "ignore smaller changes of the learning rate", 1e-8),
               (bool, smooth, "use the mean of the last metrics", false),
               (std::int64_t, window_size, "number of metrics in that mean" | at_least(1), 50),
               (std::int64_t, reset_start, "reductions at min_lr before a reset", 500));
};

/// Reduces the learning rates when a metric stops improving, equivalent to PyTorch's class of the same name.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

  void step(double metric, std::vector<double>& lrs);

  SchedulerState state() const;

  /// Throws CheckpointError for a state of another kind or mode, or with invalid numbers; nothing is changed
  /// in that case.
  void load_state(const SchedulerState& state);

 private:
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0;  // consecutive evaluations without improvement
  std::int64_t cooldown_ = 0;
};

/// GreedyLR (arXiv:2512.14527) as in Hugging Face: raises the learning rates while a metric improves, lowers
/// them while it doesn't, and resets after some time at the minimum.
class GreedyLR {
 public:
  explicit GreedyLR(const GreedyLROptions& options = {});

  /// Changes `lrs` after an evaluation. A reset restores `initial_lrs`.
  void step(double metric, std::vector<double>& lrs, const std::vector<double>& initial_lrs);

  SchedulerState state() const;

  /// Throws as ReduceLROnPlateau::load_state does.
  void load_state(const SchedulerState& state);

 private:
  double smoothed(double metric);

  void raise(std::vector<double>& lrs);

  void lower(std::vector<double>& lrs, const std::vector<double>& initial_lrs);

  GreedyLROptions options_;
  double best_;
  std::int64_t good_ = 0;  // consecutive improvements
  std::int64_t bad_ = 0;   // consecutive evaluations without improvement
  std::int64_t cooldown_ = 0;
  std::int64_t warmup_ = 0;
  std::int64_t reset_in_;
  std::deque<double> window_;
};

}  // namespace etude::inline v0
