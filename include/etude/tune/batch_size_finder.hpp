#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/dry_run.hpp"
#include "etude/reflect/enum.hpp"

namespace etude {

/// How the largest batch is looked for; the names are Lightning's.
///
/// - `power`: twice as large each time, until one doesn't fit.
/// - `binsearch`: the same, and then between the last that fitted and the first that didn't.
ETUDE_ENUM(BatchSizeSearchMode, power, binsearch);

/// The defaults are those of Lightning's BatchSizeFinder.
struct BatchSizeFinderOptions {
  BatchSizeSearchMode mode = BatchSizeSearchMode::power;
  std::int64_t steps_per_trial = 3;  ///< update steps of one batch
  std::int64_t init_val = 2;         ///< the size that is tried first
  std::int64_t max_trials = 25;
};

struct BatchSizeSearch {
  struct Trial {
    std::int64_t size;
    bool fits;
  };
  std::int64_t batch_size = 0;     ///< The largest that fitted.
  std::vector<Trial> trials = {};  ///< in their order
  /// Why no larger one was looked for: the dataset has no more examples, or the trials were used up.
  bool limited_by_dataset = false, limited_by_trials = false;
};

namespace detail {
BatchSizeSearch find_batch_size(const Context& context, DataLoaderOptions loader,
                                const std::function<std::unique_ptr<TrainingDryRun>()>& begin,
                                const BatchSizeFinderOptions& options);
}  // namespace detail

/// Finds the largest batch with which a training step fits into memory, by trying: Lightning's
/// BatchSizeFinder. Each trial is forward, backward and an optimizer's step of `steps_per_trial` whole
/// batches of `train_dataset`, with the trainer's collator, sampler, loss and optimizer; memory has run out
/// where `is_out_of_memory` says so. Everything is as it was afterwards, and no event is raised. The result
/// is for the arguments of the trainer that is to train:
///
///     args.per_device_train_batch_size = find_batch_size(trainer).batch_size;
///
/// Where the first size doesn't fit, it is halved and tried again; Lightning takes the half untried. Sizes
/// are tried up to that of the dataset. Throws Error if a batch of one doesn't fit, ArgumentError for options
/// that can't be, and what the model and the data throw, with everything put back before.
template <class Trainer>
BatchSizeSearch find_batch_size(Trainer& trainer, const BatchSizeFinderOptions& options = {}) {
  return detail::find_batch_size(
      trainer.context(), trainer.get_train_dataloader()->options(),
      [&] { return std::make_unique<TrainingDryRun>(trainer); }, options);
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/tune/impl/batch_size_finder.ipp"
#endif
