#pragma once

#include <cstdint>

#include "etude/loop/core.hpp"
#include "etude/loop/options.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0::detail {

/// Makes the optimizers of the option `optimizers`. Throws ArgumentError for patterns that name nothing, and
/// for parameters that several of them would update; warns of parameters that none updates.
void make_optimizers(const RunSettings& run, Trained& trained);

/// Makes their schedules for a training of `max_steps` steps.
void make_schedulers(const RunSettings& run, const TrainerRunConfig& run_config, OptimizerList& optimizers,
                     std::int64_t max_steps);

/// The loss of the optimizer whose turn it is or, outside of a turn, the sum of all optimizers' losses. The
/// result has each loss as a part: "generator_loss".
LossOutput loss_of_optimizers(TrainerCore& core, const Batch& batch, std::optional<double> num_items);

}  // namespace etude::inline v0::detail
