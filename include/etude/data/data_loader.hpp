#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"

namespace etude {

/// Batches of a dataset, epoch after epoch. The order of each epoch is a function of (seed, epoch), so
/// training can go on from any example of any epoch; a shuffled one is computed place by place, in constant
/// memory. With workers a dataset's `get` runs in several threads
/// at once, each on a copy of the dataset, and in no order among them: what it draws at random is repeatable
/// only from `data_generator()`. To be used by one thread.
class DataLoader {
 public:
  /// Throws ArgumentError that names every option that can't be honoured, DataError if the dataset gives no
  /// batch.
  DataLoader(Dataset dataset, DataLoaderOptions options);

  const DataLoaderOptions& options() const { return options_; }

  /// The number of examples in the dataset, if it knows.
  std::optional<std::int64_t> dataset_size() const { return dataset_.size(); }

  /// Shuffles every epoch that begins from now on, if it shuffles at all, in that way.
  void shuffle_by(ShuffleOrder order) { options_.shuffle_order = order; }

  /// Ends every epoch that begins from now on after that many batches. Throws ArgumentError below 1.
  void limit_batches(std::int64_t max_batches);

  /// The number of batches in an epoch from `first_example` on, if the dataset knows its size and the
  /// sampler, if any, is a SizedSampler or torch's random or sequential one.
  std::optional<std::int64_t> size(std::int64_t first_example = 0) const;

  /// The number of examples of an epoch, as far as that is known without going over it: at most so many.
  std::optional<std::int64_t> examples() const;

  /// The batches of an epoch from `first_example` of its order on. Nothing before it is fetched, unless the
  /// dataset is a stream, which is rewound and read up to there. Streams of several epochs may be alive at
  /// once if the dataset has an index; beginning an epoch of a stream dataset ends the one before.
  BatchStream begin_epoch(std::int64_t epoch, std::int64_t first_example = 0) const;

  /// The state of a StatefulSampler from which to go on: that of where the latest epoch began, or, if that
  /// epoch is over, of now. Empty for other samplers.
  std::string sampler_state(bool epoch_is_over) const;
  /// Gives it back, for the epoch to be begun once more.
  void load_sampler_state(const std::string& state) const;

 private:
  using Requests = std::function<bool(detail::BatchRequest&)>;
  Requests requests(std::int64_t epoch, std::int64_t first_example) const;
  Requests sampler_requests(std::int64_t epoch, std::int64_t first_example) const;
  Requests stream_requests(std::int64_t first_example) const;

  std::optional<std::int64_t> count_sampler_examples() const;
  /// The most batches that an epoch may still give from `first_example` on; unset is all.
  std::optional<std::int64_t> limit(std::int64_t first_example) const;

  Dataset dataset_;
  DataLoaderOptions options_;
  std::optional<std::int64_t> sampler_examples_;
  mutable std::string sampler_state_;
  std::shared_ptr<std::vector<Dataset>> idle_copies_ = std::make_shared<std::vector<Dataset>>();
  mutable std::weak_ptr<detail::Epoch> latest_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/data_loader.ipp"
#endif
