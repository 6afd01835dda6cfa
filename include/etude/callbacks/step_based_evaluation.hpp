#pragma once

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Evaluates every `eval_every_n_steps` update steps, or "1ep" or "30min", beside what `args.eval_strategy`
/// asks for. Follows pytorch-accelerated's callback of this name, which evaluates in the middle of a step,
/// one batch late, and leaves the model in evaluation mode: here it is after the step, as any evaluation that
/// is asked of the loop, and every submodule has its mode back afterwards. What it finds counts when the best
/// model is looked for, and for callbacks that watch a metric, unless their `count_intermediate` is false.
/// Throws ArgumentError if there is no `eval_dataset`, or for an interval that can't pass.
struct StepBasedEvaluationCallback {
  using this_callback = StepBasedEvaluationCallback;
  ETUDE_STRUCT(StepBasedEvaluationCallback,
               (Interval, eval_every_n_steps,
                "update steps from one evaluation to the next, or another interval"),
               (IntervalTimer, timer, "what has passed of it"));

  void on(const TrainBegin& e) {
    timer.begin(e, eval_every_n_steps, "eval_every_n_steps");
    if (e.trainer.options().eval_dataset.empty())
      throw ArgumentError("eval_dataset is not set: StepBasedEvaluationCallback needs it");
  }
  void on(const StepEnd& e) {
    if (timer.due(e, eval_every_n_steps)) e.control.should_evaluate = true;
  }
};

}  // namespace etude
