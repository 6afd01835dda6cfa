#pragma once

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Evaluates every `eval_every_n_steps` update steps, or after another interval such as "1ep" or "30min", in
/// addition to `args.eval_strategy`. Follows pytorch-accelerated's callback of this name, which evaluates in
/// the middle of a step, one batch late, and leaves the model in evaluation mode. Here the evaluation comes
/// after the step, like any requested evaluation, and the mode of every submodule is restored. Its metrics
/// count for the best model and for callbacks that watch a metric, unless their `count_intermediate` is
/// false. Throws ArgumentError without an `eval_dataset`, or for an invalid interval.
struct StepBasedEvaluationCallback {
  ETUDE_STRUCT(StepBasedEvaluationCallback,
               (Interval, eval_every_n_steps, "update steps between evaluations, or another interval"));

  struct State {
    ETUDE_STRUCT(State, (IntervalTimer, timer, "the elapsed part of it"));
  };
  State state = {};

  void on(const TrainBegin& e) {
    state.timer.begin(e, eval_every_n_steps, "eval_every_n_steps");
    if (e.trainer.options().eval_dataset.empty())
      throw ArgumentError("eval_dataset is not set: StepBasedEvaluationCallback needs it");
  }
  void on(const StepEnd& e) {
    if (state.timer.due(e, eval_every_n_steps)) e.control.should_evaluate = true;
  }
};

}  // namespace etude::inline v0
