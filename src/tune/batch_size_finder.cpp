#include "etude/tune/batch_size_finder.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/libtorch/memory.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0::detail {

namespace {

/// Tries sizes, each in a separate dry run that releases its memory at the end.
class BatchSizeTrials {
 public:
  BatchSizeTrials(const Dataset& dataset, DataLoaderOptions loader,
                  const std::function<std::unique_ptr<TrainingDryRun>()>& begin,
                  const BatchSizeFinderOptions& options)
      : dataset_(dataset), loader_(std::move(loader)), begin_(begin), options_(options) {
    loader_.drop_last = false;
    loader_.max_batches = {};
    loader_.num_workers = 0;
    largest_ = dataset_.size();
  }

  BatchSizeSearch run() {
    auto size = capped(options_.init_val);
    bool fit = fits(size);
    std::int64_t too_large = 0;
    for (; !fit; fit = fits(size)) {
      too_large = size;
      if (size == 1) throw Error("not even a batch of one example fits into memory: " + failure_);
      if (!may_try()) return std::move(search_);
      size = std::max<std::int64_t>(size / 2, 1);
    }
    search_.batch_size = size;
    while (too_large == 0) {
      const auto next = capped(size * 2);
      search_.limited_by_dataset = next == size;
      if (next == size || !may_try()) return std::move(search_);
      if (fits(next))
        search_.batch_size = size = next;
      else
        too_large = next;
    }
    if (options_.mode == BatchSizeSearchMode::binsearch) bisect(too_large);
    return std::move(search_);
  }

 private:
  void bisect(std::int64_t too_large) {
    while (too_large - search_.batch_size > 1 && may_try()) {
      const auto middle = search_.batch_size + (too_large - search_.batch_size) / 2;
      if (fits(middle))
        search_.batch_size = middle;
      else
        too_large = middle;
    }
  }

  std::int64_t capped(std::int64_t size) const { return largest_ ? std::min(size, *largest_) : size; }

  bool may_try() {
    search_.limited_by_trials = static_cast<std::int64_t>(search_.trials.size()) >= options_.max_trials;
    return !search_.limited_by_trials;
  }

  bool fits(std::int64_t size) {
    std::exception_ptr error;
    bool fit = false;
    {
      const auto dry_run = begin_();
      try {
        fit = train(*dry_run, size);
      } catch (...) {
        error = std::current_exception();
        dry_run->forget_step();
      }
      dry_run->end();
    }
    if (error) {
      if (!is_out_of_memory(error)) std::rethrow_exception(error);
      failure_ = message_of(error);
    }
    search_.trials.push_back({size, fit});
    return fit;
  }

  /// False if the dataset has too few examples, which isn't always known in advance.
  bool train(TrainingDryRun& dry_run, std::int64_t size) {
    dry_run.set_learning_rate(0);
    loader_.batch_size = size;
    const DataLoader loader(dataset_, loader_);
    auto batches = loader.begin_epoch(0);
    for (std::int64_t step = 0, epoch = 0; step < options_.steps_per_trial; ++step) {
      auto batch = batches.next();
      if (!batch || batch->size < size) {
        batches = loader.begin_epoch(++epoch);
        batch = batches.next();
      }
      if (!batch) throw DataError("train_dataset gave no batches");
      if (batch->size < size) {
        search_.limited_by_dataset = true;
        return false;
      }
      dry_run.step({dry_run.on_device(*batch)});
    }
    return true;
  }

  Dataset dataset_;
  DataLoaderOptions loader_;
  const std::function<std::unique_ptr<TrainingDryRun>()>& begin_;
  const BatchSizeFinderOptions& options_;
  std::optional<std::int64_t> largest_;
  std::string failure_;
  BatchSizeSearch search_;
};

}  // namespace

BatchSizeSearch find_batch_size(const Context& context, DataLoaderOptions loader,
                                const std::function<std::unique_ptr<TrainingDryRun>()>& begin,
                                const BatchSizeFinderOptions& options) {
  check_fields(options);
  return BatchSizeTrials(context.trainer.options().train_dataset, std::move(loader), begin, options).run();
}

}  // namespace etude::inline v0::detail
