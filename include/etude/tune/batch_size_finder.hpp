#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/dry_run.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// How to search for the largest batch; the names are Lightning's.
///
/// - `power`: doubles the size until one doesn't fit.
/// - `binsearch`: does the same, then searches between the largest size that fitted and the smallest that
///   didn't.
ETUDE_ENUM(BatchSizeSearchMode, power, binsearch);

/// The defaults are those of Lightning's BatchSizeFinder.
struct BatchSizeFinderOptions {
  ETUDE_STRUCT(BatchSizeFinderOptions,
               (BatchSizeSearchMode, mode, "how to search: power or binsearch", BatchSizeSearchMode::power),
               (std::int64_t, steps_per_trial, "update steps per size" | at_least(1), 3),
               (std::int64_t, init_val, "the first size to try" | at_least(1), 2),
               (std::int64_t, max_trials, "sizes to try at most" | at_least(1), 25));
};

struct BatchSizeSearch {
  struct Trial {
    std::int64_t size;
    bool fits;
  };
  std::int64_t batch_size = 0;     ///< The largest that fitted.
  std::vector<Trial> trials = {};  ///< In the order in which they ran.
  /// True if the dataset has no more examples, or if the trials were used up, when the search ended.
  bool limited_by_dataset = false, limited_by_trials = false;
};

namespace detail {
BatchSizeSearch find_batch_size(const Context& context, DataLoaderOptions loader,
                                const std::function<std::unique_ptr<TrainingDryRun>()>& begin,
                                const BatchSizeFinderOptions& options);
}  // namespace detail

/// Finds the largest batch whose training step fits into memory, by trial and error, as Lightning's
/// BatchSizeFinder does. Each trial runs forward, backward and an optimizer step for `steps_per_trial` full
/// batches of `train_dataset`, with the trainer's collator, sampler, loss and optimizer; `is_out_of_memory`
/// decides whether memory ran out. Everything is restored afterwards, and no event is raised. The result is
/// meant for the arguments of the trainer that will train:
///
///     args.per_device_train_batch_size = find_batch_size(trainer).batch_size;
///
/// If the first size doesn't fit, it is halved and tried again; Lightning uses the half without trying it.
/// Sizes are limited by the dataset's size. Throws Error if a batch of one doesn't fit, ArgumentError for
/// invalid options, and whatever the model and the data throw, after restoring everything.
template <class Trainer>
BatchSizeSearch find_batch_size(Trainer& trainer, const BatchSizeFinderOptions& options = {}) {
  return detail::find_batch_size(
      trainer.context(), trainer.get_train_dataloader()->options(),
      [&] { return std::make_unique<TrainingDryRun>(trainer); }, options);
}

}  // namespace etude::inline v0
