#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "common/toy.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"

/// Trainings whose evaluations return given values.
namespace toy {

/// Computes the metric "score", which takes these values, one per evaluation.
inline auto scores(std::vector<double> values) {
  return [values = std::move(values), i = std::size_t{0}](const etude::EvalPrediction&) mutable {
    return etude::Metrics{{"score", values.at(i++)}};
  };
}

/// One step and one evaluation per epoch, with these values as the metric "score".
inline etude::TrainerOptions scored(std::vector<double> values, etude::TrainingArguments args = arguments()) {
  args.num_train_epochs = static_cast<double>(values.size());
  args.eval_strategy = etude::IntervalStrategy::epoch;
  auto result = options(std::move(args), 1);
  result.compute_metrics = scores(std::move(values));
  return result;
}

/// The best model that a callback has saved after two epochs of three steps, evaluated at step 2, at the end
/// of the first epoch, at steps 4 and 6, and at the end of the second. `values` are the metric's values.
template <class Callback>
std::optional<etude::BestModelInfo> best_of_two_epochs(std::vector<double> values, Callback callback) {
  auto options = scored(std::move(values));
  options.args.num_train_epochs = 2;
  options.train_dataset = dataset(3);
  etude::Trainer<etude::StepBasedEvaluationCallback, Callback> trainer(
      options, etude::StepBasedEvaluationCallback{.eval_every_n_steps = 2}, callback);
  trainer.train();
  return etude::BestModelFolder(callback.save_path).info();
}

}  // namespace toy
