#include "etude/data/data_loader.hpp"

#include <fmt/ranges.h>
#include <torch/cuda.h>
#include <torch/data/samplers/distributed.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string_view>

#include "epoch.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/data/random.hpp"
#include "etude/libtorch/generators.hpp"

namespace etude::inline v0 {

std::string DataLoader::sampler_state(bool epoch_is_over) const {
  const auto* sampler = dynamic_cast<const StatefulSampler*>(options_.sampler.get());
  return sampler && epoch_is_over ? sampler->state() : sampler_state_;
}

void DataLoader::load_sampler_state(const std::string& state) const {
  if (auto* sampler = dynamic_cast<StatefulSampler*>(options_.sampler.get())) sampler->load_state(state);
}

namespace detail {

namespace {

void check_size(std::string_view name, std::int64_t size) {
  if (size < 0 || size > largest_dataset)
    throw DataError(fmt::format("{}: its size is {}: must be at least 0 and at most 2^62 ({})", name, size,
                                largest_dataset));
}

}  // namespace

}  // namespace detail

DataLoader::DataLoader(Dataset dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  const auto& name = options_.name;
  if (!dataset_) throw ArgumentError(name + ": it is missing");
  std::vector<std::string> faults;
  const auto at_least = [&](const char* field, std::int64_t value, std::int64_t least) {
    if (value < least) faults.push_back(fmt::format("{}: must be at least {}, not {}", field, least, value));
  };
  at_least("batch_size", options_.batch_size, 1);
  at_least("part.world_size", options_.part.world_size, 1);
  if (const auto& [rank, world_size] = options_.part; rank < 0 || rank >= world_size)
    faults.push_back(fmt::format("part.rank: must be from 0 to {}, not {}", world_size - 1, rank));
  if (options_.max_batches) at_least("max_batches", *options_.max_batches, 1);
  at_least("num_workers", options_.num_workers, 0);
  at_least("prefetch_factor", options_.prefetch_factor, 1);
  if (options_.shuffle && options_.sampler) faults.push_back("shuffle: must be false with a sampler");
  if (!dataset_.is_indexed() && options_.shuffle) {
    faults.push_back(fmt::format("shuffle: must be false, because {} is a stream", name));
  }
  if (!dataset_.is_indexed() && options_.sampler) {
    faults.push_back(fmt::format("sampler: must not be set, because {} is a stream", name));
  }
  if (const auto streams = dataset_.streams()) {
    const auto why = fmt::format("because {} has {} parallel streams", name, *streams);
    if (options_.shuffle) faults.push_back("shuffle: must be false, " + why);
    if (options_.sampler) faults.push_back("sampler: must not be set, " + why);
    if (options_.global_batch_size() != *streams)
      faults.push_back(fmt::format("batch_size: must be {} over all {} processes, {}; it is {} in each",
                                   *streams, options_.part.world_size, why, options_.batch_size));
  }
  if (!faults.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults, "\n")));

  if (dataset_.is_indexed() && !options_.sampler && !dataset_.size()) {
    throw DataError(fmt::format("{}: it has an index but no size; give it one, or a sampler", name));
  }
  if (dataset_.size() == 0) throw DataError(fmt::format("{}: it has no examples", name));
  sampler_examples_ = count_sampler_examples();
  for (const auto count : {dataset_.size(), sampler_examples_})
    if (count) detail::check_size(name, *count);
  if (size() == 0) {
    throw DataError(
        fmt::format("{}: it has {} examples, fewer than the batch_size of {}, and drop_last leaves them out",
                    name, *dataset_.size(), options_.global_batch_size()));
  }
  options_.pin_memory = options_.pin_memory && torch::cuda::is_available();
}

std::optional<std::int64_t> DataLoader::size(std::int64_t first_example) const {
  const auto all = options_.sampler ? sampler_examples_ : dataset_.size();
  if (!all) return std::nullopt;
  const auto left = std::max<std::int64_t>(*all - first_example, 0);
  const auto batches = options_.drop_last ? left / options_.global_batch_size()
                                          : detail::groups_of(left, options_.global_batch_size());
  return std::min(batches, limit(first_example).value_or(batches));
}

std::optional<std::int64_t> DataLoader::examples() const {
  const auto all = options_.sampler ? sampler_examples_ : dataset_.size();
  if (!all || !options_.max_batches || *options_.max_batches > *all / options_.global_batch_size())
    return all;
  return *options_.max_batches * options_.global_batch_size();
}

std::optional<std::int64_t> DataLoader::limit(std::int64_t first_example) const {
  if (!options_.max_batches) return std::nullopt;
  const auto before = detail::groups_of(first_example, options_.global_batch_size());
  return std::max<std::int64_t>(*options_.max_batches - before, 0);
}

void DataLoader::limit_batches(std::int64_t max_batches) {
  if (max_batches < 1)
    throw ArgumentError(fmt::format("max_batches: must be at least 1, not {}", max_batches));
  options_.max_batches = max_batches;
}

// The number of examples that the sampler yields, which may be less than the dataset's size. Torch's random
// and sequential samplers don't report it, so they are asked for all indices. Any other sampler might never
// end.
std::optional<std::int64_t> DataLoader::count_sampler_examples() const {
  auto* sampler = options_.sampler.get();
  if (const auto* sized = dynamic_cast<const SizedSampler*>(sampler)) return sized->size();
  if (!dynamic_cast<torch::data::samplers::RandomSampler*>(sampler) &&
      !dynamic_cast<torch::data::samplers::SequentialSampler*>(sampler))
    return std::nullopt;
  std::int64_t examples = 0;
  const auto next = sampler_requests(0, 0);
  for (detail::BatchRequest request; next(request);) examples += request.size;
  return examples;
}

BatchStream DataLoader::begin(std::int64_t number, std::int64_t first_example,
                              std::shared_ptr<const DatasetState> state, bool keeps_states) const {
  if (number < 0) throw ArgumentError(fmt::format("epoch: must be at least 0, not {}", number));
  if (first_example < 0)
    throw ArgumentError(fmt::format("first_example: must be at least 0, not {}", first_example));
  auto epoch = std::make_shared<detail::Epoch>();
  epoch->options = std::make_shared<const DataLoaderOptions>(options_);
  epoch->dataset = dataset_;
  epoch->number = number;
  epoch->idle_copies = idle_copies_;
  if (const auto before = latest_.lock(); before && (!dataset_.is_indexed() || options_.sampler)) {
    before->end();
    before->superseded = true;
  }
  if (!dataset_.is_indexed()) {
    epoch->keeps_states = keeps_states && dataset_.has_state();
    if (!dataset_.has_state()) state.reset();
    if (state) dataset_.load_state(*state);
    const bool is_there = state && first_example > 0;
    if (epoch->keeps_states) epoch->state = std::move(state);
    if (is_there) {
      epoch->position = first_example;
    } else {
      dataset_.reset();
      epoch->skip_to(first_example);
    }
    epoch->next_request = [first = epoch->position,
                           size = options_.global_batch_size()](detail::BatchRequest& request) mutable {
      request.first = std::exchange(first, first + size);
      request.size = size;
      return true;
    };
  } else {
    epoch->position = first_example;
    epoch->next_request =
        options_.sampler ? sampler_requests(number, first_example) : requests(number, first_example);
  }
  if (const auto most = limit(epoch->position))
    epoch->next_request = [next = std::move(epoch->next_request), left = *most](auto& request) mutable {
      return left-- > 0 && next(request);
    };
  epoch->start_workers();
  latest_ = epoch;
  return BatchStream(std::move(epoch));
}

namespace detail {

namespace {

/// Makes the requests for `batches` batches of the examples `example_at(place)`, for places in [first, end).
template <class ExampleAt>
auto requests_in_order(ExampleAt example_at, std::int64_t batches, std::int64_t first, std::int64_t end,
                       std::int64_t batch_size, BatchPart part) {
  return [example_at = std::move(example_at), left = batches, first, end, batch_size,
          part](BatchRequest& request) mutable {
    if (left-- <= 0) return false;
    request.first = first;
    request.size = std::min(batch_size, end - first);
    request.rows = own_rows(part, request.size);
    request.indices.resize(static_cast<std::size_t>(request.rows.last - request.rows.first));
    for (auto place = first + request.rows.first; auto& index : request.indices) index = example_at(place++);
    first += request.size;
    return true;
  };
}

}  // namespace

}  // namespace detail

DataLoader::Requests DataLoader::requests(std::int64_t epoch, std::int64_t first_example) const {
  const auto examples = *dataset_.size();  // may change between epochs
  detail::check_size(options_.name, examples);
  const auto in_order = [&](auto example_at) -> Requests {
    return detail::requests_in_order(std::move(example_at), *size(first_example), first_example, examples,
                                     options_.global_batch_size(), options_.part);
  };
  if (!options_.shuffle) return in_order([](std::int64_t place) { return place; });
  return in_order([order = detail::KeyedPermutation(examples, options_.seed, epoch)](std::int64_t place) {
    return order[place];
  });
}

std::optional<std::int64_t> DataLoader::index_of(std::int64_t epoch, std::int64_t first_example,
                                                 std::int64_t row) const {
  if (!dataset_.is_indexed() || options_.sampler) return {};
  detail::BatchRequest request;
  if (!requests(epoch, first_example)(request)) return {};
  const auto place = static_cast<std::size_t>(row);
  return place < request.indices.size() ? std::optional(request.indices[place]) : std::nullopt;
}

DataLoader::Requests DataLoader::sampler_requests(std::int64_t epoch, std::int64_t first_example) const {
  const auto sampler = options_.sampler;
  if (auto* distributed = dynamic_cast<torch::data::samplers::DistributedSampler<>*>(sampler.get())) {
    distributed->set_epoch(static_cast<std::size_t>(epoch));
  }
  if (const auto* stateful = dynamic_cast<StatefulSampler*>(sampler.get()))
    sampler_state_ = stateful->state();
  {
    // Torch's samplers draw from the global generator.
    const std::lock_guard in_use(default_generators_mutex());
    const RandomStateGuard random(torch::kCPU);
    set_seed(detail::mix(detail::mix(options_.seed, 2), static_cast<std::uint64_t>(epoch)));
    sampler->reset({});
  }
  const auto next = [sampler, drop_last = options_.drop_last](std::int64_t count) {
    const auto size = static_cast<std::size_t>(count);
    auto indices = sampler->next(size);
    while (drop_last && indices.has_value() && indices->size() < size) indices = sampler->next(size);
    return indices;
  };
  for (std::int64_t left = first_example; left > 0; left -= std::min(options_.global_batch_size(), left)) {
    interruption_point();
    if (!next(std::min(options_.global_batch_size(), left)).has_value()) break;
  }
  return [next, first = first_example, size = options_.global_batch_size(),
          part = options_.part](detail::BatchRequest& request) mutable {
    const auto indices = next(size);
    if (!indices.has_value()) return false;
    request.size = static_cast<std::int64_t>(indices->size());
    request.rows = detail::own_rows(part, request.size);
    request.indices.assign(indices->begin() + request.rows.first, indices->begin() + request.rows.last);
    request.first = std::exchange(first, first + request.size);
    return true;
  };
}

}  // namespace etude::inline v0
