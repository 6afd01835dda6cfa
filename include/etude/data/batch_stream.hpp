#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/data/collate.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/shuffle.hpp"

namespace etude::inline v0 {

/// This process's part of each global batch, whose rows are divided among the processes as evenly as
/// possible, in the order of their ranks.
struct BatchPart {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
};

struct DataLoaderOptions {
  /// Examples in this process's part of a batch.
  std::int64_t batch_size = 8;
  BatchPart part = {};
  /// Examples in the batches of all processes together.
  std::int64_t global_batch_size() const;
  /// Batches after which an epoch ends; unset means all.
  std::optional<std::int64_t> max_batches = {};
  /// Skip batches smaller than batch_size.
  bool drop_last = false;
  /// Use an order determined by (seed, epoch); the dataset must have an index.
  bool shuffle = false;
  std::uint64_t seed = 42;
  /// Threads that prefetch batches, each with its own copy of the dataset; a stream uses at most one.
  int num_workers = 0;
  /// Batches that each worker prefetches.
  int prefetch_factor = 2;
  /// Puts batches into pinned memory, if there is CUDA.
  bool pin_memory = false;
  /// Empty means default_data_collator.
  DataCollator collator = {};
  /// The inputs with these names become the labels of a batch without labels.
  std::vector<std::string> label_names = {"labels"};
  /// Chooses the examples instead of `shuffle`; a distributed sampler receives the epoch. Anything that
  /// `reset` draws from LibTorch's generators is a function of (seed, epoch); a sampler that has its own
  /// generators should be a StatefulSampler.
  std::shared_ptr<torch::data::samplers::Sampler<>> sampler = {};
  /// The dataset's name in error messages.
  std::string name = "dataset";
};

/// A sampler whose order depends on more than LibTorch's generators and the epoch: its state at the start of
/// an epoch is saved in checkpoints, and restored before that epoch continues.
struct StatefulSampler : torch::data::samplers::Sampler<> {
  virtual std::string state() const = 0;
  virtual void load_state(const std::string& state) = 0;
};

/// A sampler that knows its number of examples per epoch.
struct SizedSampler : torch::data::samplers::Sampler<> {
  virtual std::int64_t size() const = 0;
};

namespace detail {
struct BatchRequest;
struct Epoch;
}  // namespace detail

/// The batches of one epoch, in order. May be destroyed at any time, which ends its threads.
class BatchStream {
 public:
  explicit BatchStream(std::shared_ptr<detail::Epoch> epoch) : epoch_(std::move(epoch)) {}

  /// The next batch; unset at the end. Exceptions of the dataset, the collator or the sampler propagate
  /// unchanged in place of the batch they belong to; the next call continues with the following batch.
  std::optional<Batch> next();

  /// The number of the epoch's examples, over all processes, before the next batch. `begin_epoch` can
  /// continue from it.
  std::int64_t position() const;

  /// This process's fraction of the last batch's examples over all processes; 1 for a single process. It is 0
  /// if an epoch's last batch has fewer examples than there are processes and this process got none. The
  /// process then repeats another process's example, so that all processes take the same number of steps.
  double share() const;

  /// The dataset's state at that position, even if workers have read ahead. Null unless the dataset has a
  /// state and `begin_epoch` was called with one (which may be null); also null at the start of a first epoch
  /// and after a batch that couldn't be fetched.
  std::shared_ptr<const DatasetState> dataset_state() const;
  /// The same, but after `begin_epoch_without_states` the state is read from the dataset now.
  std::shared_ptr<const DatasetState> state_now() const;

 private:
  std::shared_ptr<detail::Epoch> epoch_;
};

}  // namespace etude::inline v0
