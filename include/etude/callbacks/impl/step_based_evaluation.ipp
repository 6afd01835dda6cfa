#pragma once

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/events.hpp"

namespace etude {

ETUDE_INLINE void StepBasedEvaluationCallback::on(const TrainBegin& e) {
  timer.begin(e, eval_every_n_steps, "eval_every_n_steps");
  if (e.trainer.options().eval_dataset.empty())
    throw ArgumentError("eval_dataset is not set: StepBasedEvaluationCallback needs it");
}

}  // namespace etude
