#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/linkage.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/random.hpp"
#include "etude/data/worker_pool.hpp"

namespace etude::inline v0 {
namespace detail {

struct BatchRequest {
  std::int64_t first = 0;             // its first example in the epoch; seeds its random numbers
  std::int64_t size = 0;              // number of examples
  std::vector<std::int64_t> indices;  // for an indexed dataset
};

/// The state of one epoch, shared by its loader and the stream that reads it.
struct Epoch {
  std::shared_ptr<const DataLoaderOptions> options;
  Dataset dataset;
  std::int64_t number = 0;
  std::int64_t position = 0;  // examples of the epoch before the next batch
  bool keeps_states = false;
  std::shared_ptr<const DatasetState> state;          // of the dataset at `position`
  std::function<bool(BatchRequest&)> next_request;    // false at the end
  BatchRequest current;                               // used without workers
  std::shared_ptr<std::vector<Dataset>> idle_copies;  // from past workers, for reuse

  std::size_t depth = 0;
  std::unique_ptr<WorkerPool> workers;
  struct Pending {
    std::shared_ptr<WorkerPool::Result> result;
    BatchRequest request;
    std::shared_ptr<const DatasetState> state = {};
  };
  std::deque<Pending> pending;
  bool superseded = false;

  ~Epoch() { end(); }

  void start_workers() {
    if (options->num_workers == 0) return;
    const auto count = dataset.is_indexed() ? static_cast<std::size_t>(options->num_workers) : 1;
    depth = count * static_cast<std::size_t>(options->prefetch_factor);
    std::vector<Dataset> datasets;
    while (datasets.size() < count) {
      if (!dataset.is_indexed()) {
        datasets.push_back(dataset);
      } else if (idle_copies->empty()) {
        datasets.push_back(dataset.copy_for_worker());
      } else {
        datasets.push_back(std::move(idle_copies->back()));
        idle_copies->pop_back();
      }
    }
    workers = std::make_unique<WorkerPool>(std::move(datasets));
  }

  void end() {
    next_request = [](BatchRequest&) { return false; };
    pending.clear();
    if (!workers) return;
    auto datasets = workers->stop();
    workers.reset();
    if (dataset.is_indexed()) std::ranges::move(datasets, std::back_inserter(*idle_copies));
  }

  std::optional<Batch> next() {
    if (superseded) throw DataError(options->name + ": a newer epoch of this loader has begun");
    auto batch = take();
    if (!batch) end();
    return batch;
  }

  // Reads a stream up to an example and discards everything before.
  void skip_to(std::int64_t first_example) {
    while (position < first_example) {
      interruption_point();
      const auto batch = fetch(*options, number, dataset,
                               {position, std::min(options->batch_size, first_example - position), {}},
                               /*behind=*/nullptr);
      if (!batch) return;
      position += batch->size;
    }
  }

  std::optional<Batch> take() {
    if (!workers) {
      if (!next_request(current)) return std::nullopt;
      const auto behind = state_to_fill();
      return counted(current, behind,
                     [&] { return fetch(*options, number, dataset, current, behind.get()); });
    }
    while (pending.size() < depth && order()) {
    }
    if (pending.empty()) return std::nullopt;
    const auto first = std::move(pending.front());
    pending.pop_front();
    return counted(first.request, first.state, [&] { return workers->take(*first.result); });
  }

  std::shared_ptr<DatasetState> state_to_fill() const {
    return keeps_states ? std::make_shared<DatasetState>() : nullptr;
  }

  // A batch that can't be fetched is skipped too. `behind` is filled by `get`.
  template <class Get>
  std::optional<Batch> counted(const BatchRequest& request, std::shared_ptr<const DatasetState> behind,
                               Get get) {
    position += request.size;
    state.reset();
    auto batch = get();
    state = std::move(behind);
    if (!dataset.is_indexed()) position += (batch ? batch->size : 0) - request.size;
    return batch;
  }

  // Queues one more batch for the workers; a sampler's exception takes that batch's place.
  bool order() {
    try {
      BatchRequest next;
      if (!next_request(next)) return false;
      const BatchRequest place{next.first, next.size, {}};
      const auto behind = state_to_fill();
      auto work = [options = options, number = number, next = std::move(next), behind](Dataset& copy) {
        return fetch(*options, number, copy, next, behind.get());
      };
      pending.push_back({workers->submit(std::move(work)), place, behind});
    } catch (...) {
      next_request = [](BatchRequest&) { return false; };
      pending.push_back(
          {std::make_shared<WorkerPool::Result>(WorkerPool::Result{{}, std::current_exception(), true}), {}});
    }
    return true;
  }

  // Runs in workers, where it may outlive the epoch. Fills `behind`, if given, with the dataset's state.
  static std::optional<Batch> fetch(const DataLoaderOptions& options, std::int64_t epoch, Dataset& dataset,
                                    const BatchRequest& request, DatasetState* behind) {
    const auto epoch_seed = mix(mix(options.seed, 1), static_cast<std::uint64_t>(epoch));
    seed_data_generator(mix(epoch_seed, static_cast<std::uint64_t>(request.first)));
    std::optional<Batch> batch;
    if (dataset.is_indexed()) {
      const auto examples_seed = mix(mix(options.seed, 4), static_cast<std::uint64_t>(epoch));
      batch = dataset.fetch(request.indices, options.collator, examples_seed);
    } else {
      do {
        batch = dataset.next(request.size, options.collator);
      } while (batch && options.drop_last && batch->size < request.size);
      if (behind) *behind = dataset.state();
    }
    if (!batch) return batch;
    batch = split_labels(*std::move(batch), options.label_names);
    if (options.pin_memory) {
      const auto pin = [](const torch::Tensor& tensor) {
        return tensor.is_cuda() ? tensor : tensor.pin_memory();
      };
      batch = Batch{batch->inputs.transform(pin), batch->labels.transform(pin), batch->size};
    }
    return batch;
  }
};

}  // namespace detail

ETUDE_INLINE std::optional<Batch> BatchStream::next() { return epoch_->next(); }

ETUDE_INLINE std::int64_t BatchStream::position() const { return epoch_->position; }

ETUDE_INLINE std::shared_ptr<const DatasetState> BatchStream::dataset_state() const { return epoch_->state; }

}  // namespace etude::inline v0
