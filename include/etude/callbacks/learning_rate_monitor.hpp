#pragma once

#include <cstdint>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// How often LearningRateMonitor logs: with every log of training `step`s, or once per `epoch`.
ETUDE_ENUM(LearningRateInterval, step, epoch);

/// Logs the learning rate of every parameter group. Follows Lightning's callback of this name. With `step`,
/// each log of training steps has the rates of its last step; with `epoch`, the first log of an epoch has the
/// rates at the epoch's beginning. Put it after the callbacks that request logs.
///
/// Logs `lr-AdamW` for an optimizer of that type with one group, or `lr-AdamW/pg1`, `lr-AdamW/pg2`, ... with
/// several groups; an optimizer with a name is logged as `lr-generator`. On request it also logs
/// `lr-AdamW/pg1-momentum` (or the first beta; nothing if the optimizer has neither) and
/// `lr-AdamW/pg1-weight_decay`.
///
/// Unlike Lightning's, it needs no logger, and each value belongs to the step that it is logged with.
struct LearningRateMonitor {
  ETUDE_STRUCT(LearningRateMonitor,
               (LearningRateInterval, logging_interval,
                "log with every log of training steps, or once per epoch", LearningRateInterval::step),
               (bool, log_momentum, "also log the momentum, or first beta, of each group", false),
               (bool, log_weight_decay, "also log the weight decay of each group", false));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, last_logged_step, "step of the last log with the rates", -1),
                 (std::vector<double>, learning_rates, "rates of the last step, by optimizer and group"));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
  void on(const StepBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);

 private:
  void note(const Context& e);
  void log(const Context& e) const;
};

}  // namespace etude::inline v0
