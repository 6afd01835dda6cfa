#pragma once

#include <string>
#include <vector>

#include "etude/data/data_loader.hpp"
#include "etude/trainer_options.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Throws `ArgumentError` listing everything wrong with the options, including the arguments.
void check_options(const TrainerOptions& options);

namespace detail {
/// Everything wrong with the option `optimizers`.
std::vector<std::string> faults_of_optimizers(const TrainerOptions& options);
}  // namespace detail

DataLoaderOptions train_loader_options(const TrainerOptions& options, const TrainingArguments& args);

DataLoaderOptions eval_loader_options(const TrainerOptions& options, const TrainingArguments& args,
                                      const Dataset& dataset);

/// Warns if the option `optimizer` lacks parameters of the model and holds others instead, as after a layer
/// was replaced.
void warn_of_stale_optimizer(const TrainerOptions& options);

/// Warns if this LibTorch's matrix products are many times slower than they could be.
void warn_of_slow_blas(const TrainingArguments& args);

}  // namespace etude::inline v0
