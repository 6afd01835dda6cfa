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
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/random.hpp"
#include "etude/data/worker_pool.hpp"

namespace etude::inline v0::detail {

/// Rows [first, last) of a batch; `share` is their fraction of the batch. With a share of 0, another process
/// counts them.
struct Rows {
  std::int64_t first = 0;
  std::int64_t last = 0;
  double share = 1;
};

/// This process's rows of a global batch with `size` rows.
inline Rows own_rows(const BatchPart& part, std::int64_t size) {
  if (part.world_size == 1 || size == 0) return {0, size, 1};
  const auto begin_of = [&](std::int64_t rank) {
    return size / part.world_size * rank + size % part.world_size * rank / part.world_size;
  };
  const Rows rows{begin_of(part.rank), begin_of(part.rank + 1)};
  const auto count = rows.last - rows.first;
  if (count > 0) return {rows.first, rows.last, static_cast<double>(count) / static_cast<double>(size)};
  const auto neighbour = std::min(rows.first, size - 1);
  return {neighbour, neighbour + 1, 0};
}

struct BatchRequest {
  std::int64_t first = 0;                  // its first example in the epoch; seeds its random numbers
  std::int64_t size = 0;                   // number of examples over all processes
  Rows rows = {};                          // this process's rows, for an indexed dataset
  std::vector<std::int64_t> indices = {};  // of this process's examples, for an indexed dataset
};

/// Facts about a batch that are known only once a stream has read it.
struct StreamRead {
  std::int64_t size = 0;  // examples over all processes
  double share = 1;
  std::optional<DatasetState> state = {};  // after the batch, if requested
};

/// The state of one epoch, shared by its loader and the stream that reads it.
struct Epoch {
  std::shared_ptr<const DataLoaderOptions> options;
  Dataset dataset;
  std::int64_t number = 0;
  std::int64_t position = 0;  // examples of the epoch before the next batch
  double share = 1;           // this process's share of the last batch
  bool keeps_states = false;
  std::shared_ptr<const DatasetState> state;          // the dataset's state at `position`
  std::function<bool(BatchRequest&)> next_request;    // false at the end
  BatchRequest current;                               // used without workers
  std::shared_ptr<std::vector<Dataset>> idle_copies;  // from past workers, for reuse

  std::size_t depth = 0;
  std::unique_ptr<WorkerPool> workers;
  struct Pending {
    std::shared_ptr<WorkerPool::Result> result;
    BatchRequest request;
    std::shared_ptr<StreamRead> read = {};
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

  // Reads a stream up to `first_example`, and discards the examples before it.
  void skip_to(std::int64_t first_example) {
    while (position < first_example) {
      interruption_point();
      StreamRead read;
      BatchRequest request{.first = position,
                           .size = std::min(options->global_batch_size(), first_example - position)};
      if (!fetch(*options, number, dataset, request, &read, /*with_state=*/false)) return;
      position += read.size;
    }
  }

  std::optional<Batch> take() {
    if (!workers) {
      if (!next_request(current)) return std::nullopt;
      const auto read = reading();
      return counted(current, read.get(),
                     [&] { return fetch(*options, number, dataset, current, read.get(), keeps_states); });
    }
    while (pending.size() < depth && order()) {
    }
    if (pending.empty()) return std::nullopt;
    const auto first = std::move(pending.front());
    pending.pop_front();
    return counted(first.request, first.read.get(), [&] { return workers->take(*first.result); });
  }

  std::shared_ptr<StreamRead> reading() const {
    return dataset.is_indexed() ? nullptr : std::make_shared<StreamRead>();
  }

  // Moves on even if the batch can't be fetched. `get` fills `read`.
  template <class Get>
  std::optional<Batch> counted(const BatchRequest& request, StreamRead* read, Get get) {
    position += request.size;
    state.reset();
    auto batch = get();
    share = request.rows.share;
    if (!read) return batch;
    position += read->size - request.size;
    share = read->share;
    if (read->state) state = std::make_shared<const DatasetState>(*std::move(read->state));
    return batch;
  }

  // Queues one more batch for the workers; a sampler's exception takes that batch's place.
  bool order() {
    try {
      BatchRequest next;
      if (!next_request(next)) return false;
      const BatchRequest place{next.first, next.size, next.rows, {}};
      const auto read = reading();
      auto work = [options = options, number = number, next = std::move(next), read,
                   with_state = keeps_states](Dataset& copy) {
        return fetch(*options, number, copy, next, read.get(), with_state);
      };
      pending.push_back({workers->submit(std::move(work)), place, read});
    } catch (...) {
      next_request = [](BatchRequest&) { return false; };
      pending.push_back(
          {std::make_shared<WorkerPool::Result>(WorkerPool::Result{{}, std::current_exception(), true}), {}});
    }
    return true;
  }

  // Runs in workers, where it may outlive the epoch. Fills `read` for a stream.
  static std::optional<Batch> fetch(const DataLoaderOptions& options, std::int64_t epoch, Dataset& dataset,
                                    const BatchRequest& request, StreamRead* read, bool with_state) {
    const auto epoch_seed = mix(mix(options.seed, 1), static_cast<std::uint64_t>(epoch));
    seed_data_generator(mix(epoch_seed, static_cast<std::uint64_t>(request.first + request.rows.first)));
    std::optional<Batch> batch;
    if (dataset.is_indexed()) {
      const auto examples_seed = mix(mix(options.seed, 4), static_cast<std::uint64_t>(epoch));
      batch = dataset.fetch(request.indices, options.collator, examples_seed);
    } else {
      do {
        batch = dataset.next(request.size, options.collator);
      } while (batch && options.drop_last && batch->size < request.size);
      if (with_state) read->state = dataset.state();
      if (batch && options.part.world_size > 1)
        batch = part_of_stream(*std::move(batch), options.part, *read);
      else
        read->size = batch ? batch->size : 0;
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

  // All processes read the same stream.
  static Batch part_of_stream(const Batch& batch, const BatchPart& part, StreamRead& read) {
    batch.check_divisible("the processes divide each batch of a stream, and its ");
    read.size = batch.size;
    const auto rows = own_rows(part, batch.size);
    read.share = rows.share;
    return batch.slice(rows.first, rows.last);
  }
};

}  // namespace etude::inline v0::detail
