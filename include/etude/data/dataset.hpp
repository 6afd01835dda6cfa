#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "etude/data/dataset_source.hpp"
#include "etude/data/random.hpp"

namespace torch::data::datasets {
struct TensorDataset;
}

namespace etude {

/// What a Dataset can be made from, beside tensors.
template <class T>
concept DatasetConvertible = std::same_as<T, torch::Tensor> || std::same_as<T, Tensors> ||
                             detail::TorchIndexed<T> || detail::TorchStream<T> || detail::Getter<T> ||
                             detail::RandomGetter<T> || detail::ExampleVector<T> || detail::Generator<T>;

/// Where examples come from, whatever its type; a copy refers to the same source. It is made from
///  - tensors whose first dimension counts the examples: `Dataset(inputs, labels)`, or one tensor, or torch's
///  TensorDataset;
///  - any dataset of torch::data, mapped or not, with an index or a stream (its request type is size_t);
///  - any type with `size()` and `get(index)`, and a vector, of what `example_of` understands;
///  - any type with `size()` and `get(index, torch::Generator&)`: a DataLoader seeds that generator from
///  (seed, epoch, index), so what is drawn from it is the same with any number of workers and after a resume;
///  - any type whose `next()` gives an optional of the same, to be rewound by `reset()` if it has one: a
///  stream.
class Dataset {
 public:
  Dataset() = default;

  /// Throws DataError unless all have the same first dimension.
  Dataset(Tensors inputs, Tensors labels)
      : source_(detail::tensor_source(std::move(inputs), std::move(labels))) {}

  template <class T>
    requires(!std::derived_from<T, Dataset>)
  Dataset(T source) {
    static_assert(DatasetConvertible<T> || !(
                                               requires { source->size(); } || requires { source->next(); }),
                  "etude: a dataset is given by value, and not as a pointer to it");
    static_assert(
        DatasetConvertible<T>,
        "etude: a dataset is made from tensors, a dataset of torch::data, a vector of examples, or a "
        "type with size() and get(index) or with next(); an example is a tensor, a number, or a pair, "
        "tuple, string-keyed map or Boost.Hana struct of them");
    if constexpr (DatasetConvertible<T>) source_ = make(std::move(source));
  }

  explicit operator bool() const { return source_ != nullptr; }

  /// How many examples it has, if it knows.
  std::optional<std::int64_t> size() const { return source_->size(); }

  /// A checksum of a few examples, at a cost that doesn't grow with their number: of tensors and vectors.
  /// Empty for others, whose examples are made by code of the program's.
  std::string fingerprint() const { return source_->fingerprint(); }

  /// Whether `fetch` works; else `next` does.
  bool is_indexed() const { return source_->is_indexed(); }

  /// The examples at these indices as a batch, made by `collator` or, without one, by
  /// `default_data_collator`. The generator of a `get` that takes one is seeded from (seed, index). Throws
  /// DataError for examples that can't make a batch.
  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator = {},
              std::uint64_t seed = 0) const {
    return source_->fetch(indices, collator, seed);
  }

  /// The next examples of a stream, `batch_size` of them as long as there are as many; nothing at its end.
  std::optional<Batch> next(std::int64_t batch_size, const DataCollator& collator = {}) const {
    return source_->next(batch_size, collator);
  }

  /// Rewinds a stream that has a `reset()`; one that has none goes on where it is.
  void reset() const { source_->reset(); }

  /// A dataset with a copy of the source, to be used by another thread. Throws ArgumentError if it can't be
  /// copied.
  Dataset copy_for_worker() const {
    Dataset copy;
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

  std::shared_ptr<detail::DatasetSource> source_;
};

}  // namespace etude
