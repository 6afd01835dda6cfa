#pragma once

#include <string>

#include "etude/data/data_loader.hpp"
#include "etude/trainer_options.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Throws `ArgumentError` listing everything wrong with the options, including the arguments.
void check_options(const TrainerOptions& options);

namespace detail {
class Faults;

/// Adds everything wrong with the option `optimizers`.
void add_faults_of_optimizers(const TrainerOptions& options, Faults& found);

/// The trainer's arguments, overridden by those of one optimizer or one phase.
template <class Own>
TrainingArguments arguments_of(TrainingArguments args, const Own& own) {
#define ETUDE_DETAIL_SET(type, name) \
  if (own.name) args.name = *own.name;
  ETUDE_DETAIL_FOR_OWN_ARGUMENTS(ETUDE_DETAIL_SET)
#undef ETUDE_DETAIL_SET
  return args;
}

/// The trainer's options and arguments in one of its phases.
TrainerOptions in_phase(TrainerOptions options, const PhaseOptions& phase);
TrainingArguments in_phase(TrainingArguments args, const PhaseOptions& phase);
}  // namespace detail

DataLoaderOptions train_loader_options(const TrainerOptions& options, const TrainingArguments& args);

DataLoaderOptions eval_loader_options(const TrainerOptions& options, const TrainingArguments& args,
                                      const Dataset& dataset);

/// Warns if the option `optimizer` lacks parameters of the model and holds foreign ones instead, as after a
/// layer was replaced.
void warn_of_stale_optimizer(const TrainerOptions& options);

/// Warns if the best model is the one with the greatest metric although the metric's name, such as "mse",
/// suggests that less is better.
void warn_of_greatest_error(const TrainingArguments& args);

/// Warns if this LibTorch's matrix products are many times slower than they could be.
void warn_of_slow_blas(const TrainingArguments& args);

}  // namespace etude::inline v0
