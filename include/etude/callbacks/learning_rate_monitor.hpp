#pragma once

#include <cstdint>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// How often LearningRateMonitor logs: with every log of training `step`s, or once an `epoch`.
ETUDE_ENUM(LearningRateInterval, step, epoch);

/// Logs the learning rate of every parameter group: Lightning's callback of this name. With `step`, each
/// log of training steps has the rates that its last step was made with; with `epoch`, those that an epoch
/// begins with are in the next log. Stands behind the callbacks that ask for logs.
///
/// Logs `lr-AdamW` for an optimizer of that type with one group, or `lr-AdamW/pg1`, `lr-AdamW/pg2`, ... for
/// one with several; `lr-AdamW/pg1-momentum` (the first beta, where that is what the optimizer has;
/// nothing, where it has neither) and `lr-AdamW/pg1-weight_decay` if asked for.
///
/// Unlike Lightning's it needs no logger, and what it logs belongs to the step beside which it stands.
struct LearningRateMonitor {
  using this_callback = LearningRateMonitor;
  ETUDE_STRUCT(LearningRateMonitor,
               (LearningRateInterval, logging_interval,
                "log with every log of training steps, or once an epoch", LearningRateInterval::step),
               (bool, log_momentum, "log the momentum, or first beta, of each group too", false),
               (bool, log_weight_decay, "log the weight decay of each group too", false),
               (std::int64_t, last_logged_step, "the step of the last log that has the rates", -1),
               (std::vector<double>, learning_rates, "rates of the last step, by group"));

  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
  void on(const StepBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);

 private:
  void note(const Context& e);
  void log(const Context& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/learning_rate_monitor.ipp"
#endif
