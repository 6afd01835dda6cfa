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
#include "etude/data/shuffle.hpp"

namespace etude {

struct DataLoaderOptions {
  std::int64_t batch_size = 8;
  /// Batches after which an epoch ends; unset is all.
  std::optional<std::int64_t> max_batches = {};
  /// Leave out batches that are smaller than batch_size.
  bool drop_last = false;
  /// In an order that (seed, epoch) decide; the dataset must have an index.
  bool shuffle = false;
  ShuffleOrder shuffle_order = ShuffleOrder::feistel;
  std::uint64_t seed = 42;
  /// Threads that fetch ahead, each with a copy of the dataset; a stream has one at most.
  int num_workers = 0;
  /// Batches that each worker fetches ahead.
  int prefetch_factor = 2;
  /// Page-locked batches, where there is CUDA.
  bool pin_memory = false;
  /// default_data_collator, if empty.
  DataCollator collator = {};
  /// Which of an unlabelled batch's named inputs are its labels.
  std::vector<std::string> label_names = {"labels"};
  /// Chooses the examples instead of `shuffle`; a distributed one is told the epoch. What it draws from
  /// LibTorch's generators in `reset` is a function of (seed, epoch); one that has generators of its own
  /// should be a StatefulSampler.
  std::shared_ptr<torch::data::samplers::Sampler<>> sampler = {};
  /// What errors call the dataset.
  std::string name = "dataset";
};

/// A sampler whose order hangs on more than LibTorch's generators and the epoch: what it gives here, at the
/// beginning of an epoch, is stored with checkpoints and put back before that epoch goes on.
struct StatefulSampler : torch::data::samplers::Sampler<> {
  virtual std::string state() const = 0;
  virtual void load_state(const std::string& state) = 0;
};

/// A sampler that knows how many examples it gives in an epoch.
struct SizedSampler : torch::data::samplers::Sampler<> {
  virtual std::int64_t size() const = 0;
};

namespace detail {
struct BatchRequest;
struct Epoch;
}  // namespace detail

/// The batches of one epoch, in order. It may be left at any time: its threads end with it.
class BatchStream {
 public:
  explicit BatchStream(std::shared_ptr<detail::Epoch> epoch) : epoch_(std::move(epoch)) {}

  /// The next batch; nothing at the end. What the dataset, the collator or the sampler throws comes out as it
  /// was thrown, in the place of the batch that it belongs to; the next call goes on with the next batch.
  std::optional<Batch> next();

  /// How many examples of the epoch lie before the next batch: where `begin_epoch` would go on.
  std::int64_t position() const;

 private:
  std::shared_ptr<detail::Epoch> epoch_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/batch_stream.ipp"
#endif
