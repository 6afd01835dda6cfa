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

/// Estimates the memory that a training of this trainer takes, by a few steps of a dry run on the first
/// batches of `train_dataset`: with the trainer's loader, loss, optimizer, precision and gradient
/// checkpointing.
///
///     fmt::print("{}", estimate_memory(trainer, {.world_size = 8}).table());
///
/// Other batches may need other amounts, if their shapes differ. Everything is restored, and no event is
/// raised. The dry run itself needs copies of weights and moments besides. Callbacks, the private pool of
/// `cuda_graph`, and memory that LibTorch's libraries and allocators take for themselves, aren't counted.
///
/// Throws ArgumentError for invalid options and in several processes, CheckpointError for an optimizer of the
/// user's own that can't be restored, Error while LibTorch's profiler runs, and whatever the model and the
/// data throw, after restoring everything.
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
