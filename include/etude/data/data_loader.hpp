#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"
#include "etude/data/dataset_state.hpp"

namespace etude::inline v0 {

/// Makes batches of a dataset, epoch after epoch. The order of each epoch is a function of (seed, epoch), so
/// training can resume from any example of any epoch; a shuffled order is computed element by element, in
/// constant memory. With workers, a dataset's `get` runs in several threads at once, each on its own copy of
/// the dataset and in no particular order, so only random numbers from `data_generator()` are reproducible.
/// Not thread-safe.
class DataLoader {
 public:
  /// Throws ArgumentError that lists every invalid option, and DataError if the dataset yields no batch.
  DataLoader(Dataset dataset, DataLoaderOptions options);

  const DataLoaderOptions& options() const { return options_; }

  const Dataset& dataset() const { return dataset_; }

  /// The number of examples in the dataset, if known.
  std::optional<std::int64_t> dataset_size() const { return dataset_.size(); }

  /// True if the dataset is a stream with a state.
  bool has_dataset_state() const { return dataset_.has_state(); }

  /// Limits the epochs that begin from now on to this many batches. Throws ArgumentError below 1.
  void limit_batches(std::int64_t max_batches);

  /// The number of batches in an epoch from `first_example` on, if the dataset knows its size and the
  /// sampler, if any, is a SizedSampler or torch's random or sequential one.
  std::optional<std::int64_t> size(std::int64_t first_example = 0) const;

  /// An upper bound on the number of examples per epoch, if one is known without iterating.
  std::optional<std::int64_t> examples() const;

  /// The batches of an epoch, starting from example `first_example` of its order. Earlier examples aren't
  /// fetched, unless the dataset is a stream, which is rewound and read up to there. If the dataset has an
  /// index, streams of several epochs may exist at once; otherwise beginning an epoch ends the previous one.
  BatchStream begin_epoch(std::int64_t epoch, std::int64_t first_example = 0) const {
    return begin(epoch, first_example, nullptr, /*keeps_states=*/false);
  }

  /// The same for an epoch that may be resumed: keeps the dataset's state after each batch, and continues
  /// from `state`, the result of `BatchStream::dataset_state` at that position, without reading earlier
  /// examples. If `first_example` is 0, `state` is the state at the end of the previous epoch, and the
  /// dataset is rewound. If `state` is null, the stream is read up to `first_example`.
  BatchStream begin_epoch(std::int64_t epoch, std::int64_t first_example,
                          std::shared_ptr<const DatasetState> state) const {
    return begin(epoch, first_example, std::move(state), /*keeps_states=*/true);
  }

  /// The same, but keeps the state after each batch only if a worker reads ahead; `BatchStream::state_now`
  /// returns it either way.
  BatchStream begin_epoch_without_states(std::int64_t epoch, std::int64_t first_example,
                                         std::shared_ptr<const DatasetState> state) const {
    return begin(epoch, first_example, std::move(state), /*keeps_states=*/options_.num_workers > 0);
  }

  /// The dataset's index of the example in row `row` of this process's part of the batch that begins at
  /// `first_example` of an epoch's order. Unset for a stream, or if there is a sampler.
  std::optional<std::int64_t> index_of(std::int64_t epoch, std::int64_t first_example,
                                       std::int64_t row) const;

  /// The state of a StatefulSampler to resume from: as it was at the start of the latest epoch or, if that
  /// epoch is over, as it is now. Empty for other samplers.
  std::string sampler_state(bool epoch_is_over) const;
  /// Restores that sampler state, so that the epoch can begin again.
  void load_sampler_state(const std::string& state) const;

 private:
  BatchStream begin(std::int64_t epoch, std::int64_t first_example, std::shared_ptr<const DatasetState> state,
                    bool keeps_states) const;

  using Requests = std::function<bool(detail::BatchRequest&)>;
  Requests requests(std::int64_t epoch, std::int64_t first_example) const;
  Requests sampler_requests(std::int64_t epoch, std::int64_t first_example) const;

  std::optional<std::int64_t> count_sampler_examples() const;
  /// The maximum number of batches that an epoch may still yield from `first_example` on; unset means all.
  std::optional<std::int64_t> limit(std::int64_t first_example) const;

  Dataset dataset_;
  DataLoaderOptions options_;
  std::optional<std::int64_t> sampler_examples_;
  mutable std::string sampler_state_;
  std::shared_ptr<std::vector<Dataset>> idle_copies_ = std::make_shared<std::vector<Dataset>>();
  mutable std::weak_ptr<detail::Epoch> latest_;
};

}  // namespace etude::inline v0
