#pragma once

#include "etude/any_trainer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/dry_run.hpp"
#include "etude/parallel/memory_estimate.hpp"

namespace etude::inline v0 {

namespace detail {
void check(const MemoryEstimateOptions& options, const Context& context);
MemoryEstimate estimate_memory(const Context& context, TrainingDryRun& dry_run, const DataLoader& loader,
                               const MemoryEstimateOptions& options);
}  // namespace detail

/// Estimates the memory that training with this trainer takes. Runs a few dry steps on the first batches of
/// `train_dataset`, with the trainer's loader, loss, optimizer, precision and gradient checkpointing.
///
///     fmt::print("{}", estimate_memory(trainer, {.world_size = 8}).table());
///
/// Batches of different shapes may need more or less. Everything is restored, and no event is raised. The dry
/// run itself also needs memory for copies of the weights and moments. The estimate doesn't count callbacks,
/// the private pool of `cuda_graph`, and the overhead of LibTorch's libraries and allocators.
///
/// Throws ArgumentError for invalid options and in several processes, CheckpointError for a custom optimizer
/// that can't be restored, Error while LibTorch's profiler runs, and whatever the model and the data throw,
/// after restoring everything.
template <class Trainer>
MemoryEstimate estimate_memory(Trainer& trainer, const MemoryEstimateOptions& options = {}) {
  detail::check(options, trainer.context());
  TrainingDryRun dry_run(trainer);
  const auto loader = trainer.get_train_dataloader();
  auto estimate = detail::estimate_memory(trainer.context(), dry_run, *loader, options);
  dry_run.end();
  return estimate;
}

}  // namespace etude::inline v0
