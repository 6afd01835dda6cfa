#pragma once

#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/tune/hyperparameter_search.hpp"

/// A search over the learning rate for fitting a line to four points.
namespace toy {

inline etude::TrainingArguments search_arguments(const Folder& folder) {
  auto args = arguments();
  args.output_dir = folder;
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_norm = 0;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 2;
  return args;
}

/// Trains w x + b from w = b = 0.
inline etude::TrainerOptions line(const etude::TrainingArguments& args) {
  auto result = options(args, 4, 4);
  result.model = {};
  result.model_init = [] { return Line(); };
  return result;
}

inline etude::Trainer<> line_trainer(const etude::TrainingArguments& args) {
  return etude::Trainer<>(line(args));
}

inline const etude::SearchSpace rates{
    {"learning_rate", etude::FloatRange{.low = 1e-3, .high = 0.5, .log = true}}};

}  // namespace toy
