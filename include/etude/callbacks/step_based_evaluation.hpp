#pragma once

#include <cstdint>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Evaluates every `eval_every_n_steps` update steps, beside what `args.eval_strategy` asks for. Follows
/// pytorch-accelerated's callback of this name, which evaluates in the middle of a step, one batch late, and
/// leaves the model in evaluation mode: here it is after the step, as any evaluation that is asked of the
/// loop, and every submodule has its mode back afterwards. What it finds counts when the best model is looked
/// for. Throws ArgumentError if there is no `eval_dataset`, or for an interval below 1.
struct StepBasedEvaluationCallback {
  ETUDE_STRUCT(StepBasedEvaluationCallback,
               (std::int64_t, eval_every_n_steps, "update steps from one evaluation to the next", 0));

  void on(const TrainBegin& e);
  void on(const StepEnd& e) {
    if (e.state.global_step % eval_every_n_steps == 0) e.control.should_evaluate = true;
  }
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/step_based_evaluation-inl.hpp"
#endif
