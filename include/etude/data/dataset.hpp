#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/dataset_source.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/random.hpp"

namespace torch::data::datasets {
struct TensorDataset;
}

namespace etude::inline v0 {

/// Types that a Dataset can be made from.
template <class T>
concept DatasetConvertible = std::same_as<T, torch::Tensor> || std::same_as<T, Tensors> ||
                             detail::TorchIndexed<T> || detail::TorchStream<T> || detail::Getter<T> ||
                             detail::RandomGetter<T> || detail::ExampleVector<T> || detail::Generator<T>;

namespace detail {
template <class T>
concept PointsToDataset = requires(T source) { source->size(); } || requires(T source) { source->next(); };
}

/// A type-erased source of examples; a copy refers to the same source. It is made from
/// - tensors whose first dimension is the number of examples: `Dataset(inputs, labels)`, a single tensor, or
/// a torch TensorDataset;
/// - any torch::data dataset, mapped or not: indexed, or a stream (with request type size_t);
/// - any type with `size()` and `get(index)`, or a vector, of anything that `example_of` understands;
/// - any type with `size()` and `get(index, torch::Generator&)`: a DataLoader seeds that generator from
/// (seed, epoch, index), so its random numbers are the same for any number of workers and after a resume;
/// - a stream: any type whose `next()` returns an optional of anything that `example_of` understands; its
/// `reset()`, if any, rewinds it. A stream with `DatasetState state() const` and `load_state(const
/// DatasetState&)`, or the same with `nlohmann::ordered_json`, is resumed from its saved state: the earlier
/// examples of the epoch aren't read.
class Dataset {
 public:
  Dataset() = default;

  /// Throws DataError unless all have the same first dimension.
  Dataset(Tensors inputs, Tensors labels)
      : source_(detail::tensor_source(std::move(inputs), std::move(labels))) {}

  template <DatasetConvertible T>
  Dataset(T source) : source_(make(std::move(source))) {}

  // Declared only to be reported. For an unavailable function, compilers report the calling line first; for a
  // failed static_assert, last.
  template <class T>
    requires(!std::derived_from<T, Dataset> && !DatasetConvertible<T> && !detail::PointsToDataset<T>)
  __attribute__((unavailable(
      "etude: a dataset is made from tensors, a dataset of torch::data, a vector of examples, or a type with "
      "size() and get(index) or with next(); an example is a tensor, a number, or a pair, tuple, "
      "string-keyed map or Boost.Hana struct of them"))) Dataset(T source);

  template <class T>
    requires(!DatasetConvertible<T> && detail::PointsToDataset<T>)
  __attribute__((unavailable("etude: pass the dataset by value, not as a pointer"))) Dataset(T source);

  explicit operator bool() const { return source_ != nullptr; }

  /// The number of examples, if known.
  std::optional<std::int64_t> size() const { return source_->size(); }

  /// A checksum of a few tensor or vector elements, at a cost that doesn't grow with the dataset, or the
  /// result of the type's `std::string fingerprint() const`. Empty for other types, whose examples are made
  /// by user code. Resuming with a different fingerprint gives a warning.
  std::string fingerprint() const { return source_->fingerprint(); }

  /// True if this is only this process's part of the data: see `already_divided`.
  bool is_divided() const { return is_divided_; }

  /// The number of parallel streams, if `parallel_streams` made this dataset: its order is then fixed, and
  /// every batch has that many examples.
  std::optional<std::int64_t> streams() const { return source_->streams(); }

  /// True if the dataset has `fetch`, otherwise it has `next`.
  bool is_indexed() const { return source_->is_indexed(); }

  /// A batch of the examples at these indices, made by `collator` or, if that is empty, by
  /// `default_data_collator`. A generator passed to `get` is seeded from (seed, index). Throws DataError for
  /// examples that can't form a batch.
  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator = {},
              std::uint64_t seed = 0) const {
    return source_->fetch(indices, collator, seed);
  }

  /// The next `batch_size` examples of a stream, or as many as are left; unset at the end.
  std::optional<Batch> next(std::int64_t batch_size, const DataCollator& collator = {}) const {
    return source_->next(batch_size, collator);
  }

  /// Rewinds a stream if it has a `reset()`; otherwise the stream continues where it is.
  void reset() const { source_->reset(); }

  /// True if this is a stream with a state, which the next two functions save and restore.
  bool has_state() const { return source_->has_state(); }

  /// The state after the last example that was read; its tensors are copies.
  DatasetState state() const { return source_->state(); }

  /// Continues a stream from `state`. Exceptions of its `load_state` propagate unchanged.
  void load_state(const DatasetState& state) const { source_->load_state(state); }

  /// Returns a dataset with a copy of the source, for use in another thread. Throws ArgumentError if it can't
  /// be copied.
  Dataset copy_for_worker() const {
    Dataset copy = *this;
    copy.source_ = source_->copy();
    return copy;
  }

 private:
  template <class T>
  static std::shared_ptr<detail::DatasetSource> make(T source) {
    if constexpr (std::same_as<T, torch::Tensor> || std::same_as<T, Tensors>) {
      return detail::tensor_source(std::move(source), Tensors());
    } else if constexpr (std::same_as<T, torch::data::datasets::TensorDataset>) {
      return detail::tensor_source(std::move(source.tensor), Tensors());
    } else if constexpr (detail::TorchStream<T> || detail::Generator<T>) {
      return std::make_shared<detail::StreamSource<T>>(std::move(source));
    } else {
      return std::make_shared<detail::IndexedSource<T>>(std::move(source));
    }
  }

  friend Dataset concatenated(std::vector<Dataset> datasets);
  friend Dataset parallel_streams(Dataset windows, std::int64_t streams);
  friend Dataset already_divided(Dataset part);

  std::shared_ptr<detail::DatasetSource> source_;
  bool is_divided_ = false;
};

/// Declares that the program has already divided the data among the processes, and that this dataset is this
/// process's part, for training, evaluation or prediction. Each process goes over its whole part once per
/// epoch; a process with a shorter part takes part in the last steps with examples of weight 0. All processes
/// must declare it. With a single process, it changes nothing.
inline Dataset already_divided(Dataset part) {
  part.is_divided_ = true;
  return part;
}

}  // namespace etude::inline v0
