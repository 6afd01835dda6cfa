#include "etude/callbacks/step_based_evaluation.hpp"

namespace etude::inline v0 {

void StepBasedEvaluationCallback::on(const TrainBegin& e) {
  state.timer.begin(e, eval_every_n_steps, "eval_every_n_steps");
  if (e.trainer.options().eval_dataset.empty())
    throw ArgumentError("eval_dataset is not set: StepBasedEvaluationCallback needs it");
}

}  // namespace etude::inline v0
