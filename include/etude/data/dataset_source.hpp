#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/data/collate.hpp"
#include "etude/data/example_of.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::detail {

/// What a Dataset holds. Who has an index overrides `fetch`, who is a stream `next` and `reset`.
struct DatasetSource {
  virtual ~DatasetSource() = default;
  virtual std::optional<std::int64_t> size() const = 0;
  virtual bool is_indexed() const = 0;
  virtual Batch fetch(std::span<const std::int64_t>, const DataCollator&) {
    throw DataError("a stream dataset can't be asked for examples by index");
  }
  virtual std::optional<Batch> next(std::int64_t, const DataCollator&) {
    throw DataError("a dataset with an index is no stream");
  }
  virtual void reset() {}
  virtual std::shared_ptr<DatasetSource> copy() const = 0;
};

inline Batch collate(std::vector<Example> examples, std::span<const std::int64_t> indices,
                     const DataCollator& collator) {
  if (!collator) return default_data_collator(examples, indices);
  Batch batch = collator(std::move(examples));
  return batch.size > 0 ? batch : make_batch(std::move(batch.inputs), std::move(batch.labels));
}

template <class T>
concept ExampleRange =
    std::ranges::sized_range<const T> && ExampleConvertible<std::ranges::range_value_t<const T>>;

/// The batch in what a torch dataset's get_batch gives: examples, or tensors that its transforms have stacked
/// already.
template <class T>
Batch batch_of(T&& value, std::span<const std::int64_t> indices, const DataCollator& collator) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (ExampleRange<Value>) {
    std::vector<Example> examples;
    examples.reserve(std::ranges::size(value));
    for (const auto& example : value) examples.push_back(example_of(example));
    return collate(std::move(examples), indices, collator);
  } else {
    static_assert(ExampleConvertible<Value> || std::same_as<Value, Batch>,
                  "the get_batch of this dataset must give a vector of examples, an Example of stacked "
                  "tensors or an etude::Batch");
    if (collator) {
      throw ArgumentError(
          "data_collator: must be left out, because the dataset gives whole batches and not examples");
    }
    if constexpr (std::same_as<Value, Batch>) {
      return value.size > 0 ? value : make_batch(value.inputs, value.labels);
    } else {
      auto [inputs, labels] = example_of(value);
      return make_batch(std::move(inputs), std::move(labels));
    }
  }
}

// An index of the type that the dataset's `get` asks for.
struct ExampleIndex {
  std::int64_t value;
  template <std::integral I>
  operator I() const {
    return static_cast<I>(value);
  }
};

template <class T>
concept TorchDataset = requires(T& source) {
                         typename T::BatchType;
                         typename T::BatchRequestType;
                         source.size();
                       };
template <class T>
concept TorchIndexed =
    TorchDataset<T> && std::constructible_from<typename T::BatchRequestType, c10::ArrayRef<std::size_t>>;
template <class T>
concept TorchStream = TorchDataset<T> && std::integral<typename T::BatchRequestType>;
template <class T>
concept Getter = requires(T& source, ExampleIndex index) {
                   source.size();
                   requires ExampleConvertible<std::remove_cvref_t<decltype(source.get(index))>>;
                 };
template <class T>
concept ExampleVector = std::ranges::random_access_range<T> && ExampleRange<T>;
template <class T>
concept Generator = requires(T& source) {
                      { source.next() } -> OptionalLike;
                      requires ExampleConvertible<std::remove_cvref_t<decltype(*source.next())>>;
                    };

template <class T>
std::optional<std::int64_t> size_of(const T& source) {
  if constexpr (requires { source.size().has_value(); }) {
    const auto size = source.size();
    return size.has_value() ? std::optional(static_cast<std::int64_t>(*size)) : std::nullopt;
  } else if constexpr (requires { source.size(); }) {
    return static_cast<std::int64_t>(source.size());
  } else {
    return std::nullopt;
  }
}

/// Copies rows `indices[begin]`, ..., `indices[end - 1]` to the places `begin`, ..., `end - 1`.
inline void copy_rows(std::byte* to, const std::byte* from, std::span<const std::int64_t> indices,
                      std::size_t bytes, std::size_t begin, std::size_t end) {
  const auto in_pieces = [&]<std::size_t piece>(std::integral_constant<std::size_t, piece>) {
    for (auto i = begin; i < end; ++i)
      for (std::size_t at = 0; at < bytes; at += piece)
        std::memcpy(to + i * bytes + at, from + static_cast<std::size_t>(indices[i]) * bytes + at, piece);
  };
  // For a few bytes, memcpy of a size that the compiler doesn't know costs more than the copy.
  if (bytes <= 512 && bytes % 16 == 0) return in_pieces(std::integral_constant<std::size_t, 16>());
  if (bytes <= 64 && bytes % 8 == 0) return in_pieces(std::integral_constant<std::size_t, 8>());
  if (bytes == 4) return in_pieces(std::integral_constant<std::size_t, 4>());
  while (begin < end) {
    auto last = begin + 1;  // Neighbours are copied together.
    while (last < end && indices[last] == indices[last - 1] + 1) ++last;
    std::memcpy(to + begin * bytes, from + static_cast<std::size_t>(indices[begin]) * bytes,
                (last - begin) * bytes);
    begin = last;
  }
}

/// The rows of `tensor` at these indices, as one tensor. Throws DataError for an index that it doesn't have.
inline torch::Tensor rows_of(const torch::Tensor& tensor, std::span<const std::int64_t> indices) {
  const auto count = static_cast<std::int64_t>(indices.size()), all = tensor.size(0);
  for (const auto index : indices)
    if (index < 0 || index >= all)
      throw DataError(fmt::format("example {} was asked for, of {}", index, all));
  const bool is_plain = tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
                        !tensor.requires_grad() && !tensor.is_quantized() && !tensor.is_conj() &&
                        !tensor.is_neg();
  if (!is_plain) {
    const auto index = at::from_blob(const_cast<std::int64_t*>(indices.data()), {count}, at::kLong);
    return tensor.index_select(0, index.to(tensor.device()));
  }
  // What index_select does too, without the cost of its generality: for rows of few numbers a fraction of it.
  c10::SmallVector<std::int64_t, 6> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[0] = count;
  auto rows = at::empty(sizes, tensor.options());
  const auto bytes = tensor.nbytes() / static_cast<std::size_t>(std::max<std::int64_t>(all, 1));
  const auto* from = static_cast<const std::byte*>(tensor.data_ptr());
  auto* to = static_cast<std::byte*>(rows.data_ptr());
  const auto grain = static_cast<std::int64_t>(131'072 / std::max<std::size_t>(bytes, 1)) + 1;
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
    copy_rows(to, from, indices, bytes, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
  return rows;
}

/// Tensors whose first dimension counts examples: a batch is one gather out of each, and a copy, since a
/// model that works in place would otherwise change the dataset.
class TensorSource final : public DatasetSource {
 public:
  TensorSource(Tensors inputs, Tensors labels) : all_(make_batch(std::move(inputs), std::move(labels))) {}

  std::optional<std::int64_t> size() const override { return all_.size; }
  bool is_indexed() const override { return true; }
  std::shared_ptr<DatasetSource> copy() const override { return std::make_shared<TensorSource>(*this); }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator) override {
    if (collator) {
      std::vector<Example> examples;
      for (const auto i : indices) {
        const auto row = [&](const torch::Tensor& tensor) { return tensor.select(0, i).clone(); };
        examples.push_back({all_.inputs.transform(row), all_.labels.transform(row)});
      }
      return collate(std::move(examples), indices, collator);
    }
    const auto rows = [&](const torch::Tensor& tensor) { return rows_of(tensor, indices); };
    return {all_.inputs.transform(rows), all_.labels.transform(rows),
            static_cast<std::int64_t>(indices.size())};
  }

 private:
  Batch all_;
};

template <class T>
class OwnedSource : public DatasetSource {
 public:
  explicit OwnedSource(T source) : source_(std::move(source)) {}

  std::optional<std::int64_t> size() const override { return size_of(source_); }

 protected:
  T source_;
};

/// A dataset that is asked for examples by index.
template <class T>
class IndexedSource final : public OwnedSource<T> {
 public:
  using OwnedSource<T>::OwnedSource;

  bool is_indexed() const override { return true; }
  std::shared_ptr<DatasetSource> copy() const override {
    if constexpr (std::copy_constructible<T>) {
      return std::make_shared<IndexedSource>(*this);
    } else {
      throw ArgumentError(
          fmt::format("dataloader_num_workers: must be 0, because each worker needs a copy of the dataset "
                      "and {} can't be copied",
                      type_name<T>()));
    }
  }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator) override {
    if constexpr (TorchIndexed<T>) {
      const std::vector<std::size_t> request(indices.begin(), indices.end());
      return batch_of(
          this->source_.get_batch(typename T::BatchRequestType(c10::ArrayRef<std::size_t>(request))), indices,
          collator);
    } else {
      std::vector<Example> examples;
      examples.reserve(indices.size());
      for (const auto i : indices) {
        if constexpr (Getter<T>) {
          examples.push_back(example_of(this->source_.get(ExampleIndex{i})));
        } else {
          examples.push_back(example_of(this->source_[static_cast<std::size_t>(i)]));
        }
      }
      return collate(std::move(examples), indices, collator);
    }
  }
};

/// A dataset that is read from front to back. Once it has ended it is not asked again before `reset`.
template <class T>
class StreamSource final : public OwnedSource<T> {
 public:
  using OwnedSource<T>::OwnedSource;

  bool is_indexed() const override { return false; }
  std::shared_ptr<DatasetSource> copy() const override {
    throw DataError("a stream dataset can't be split among workers");
  }

  void reset() override {
    if constexpr (requires { this->source_.reset(); }) this->source_.reset();
    ended_ = false;
  }

  std::optional<Batch> next(std::int64_t batch_size, const DataCollator& collator) override {
    if (ended_) return std::nullopt;
    auto batch = read(batch_size, collator);
    ended_ = ended_ || !batch;
    return batch;
  }

 private:
  std::optional<Batch> read(std::int64_t batch_size, const DataCollator& collator) {
    if constexpr (TorchStream<T>) {
      auto batch = this->source_.get_batch(static_cast<typename T::BatchRequestType>(batch_size));
      if constexpr (OptionalLike<decltype(batch)>) {
        if (!batch.has_value()) return std::nullopt;
        return some(*std::move(batch), collator);
      } else {
        return some(std::move(batch), collator);
      }
    } else {
      std::vector<Example> examples;
      while (static_cast<std::int64_t>(examples.size()) < batch_size) {
        const auto example = this->source_.next();
        if (!example.has_value()) {
          ended_ = true;
          break;
        }
        examples.push_back(example_of(*example));
      }
      return some(std::move(examples), collator);
    }
  }

  template <class Value>
  static std::optional<Batch> some(Value value, const DataCollator& collator) {
    if constexpr (ExampleRange<Value>) {
      if (std::ranges::empty(value)) return std::nullopt;
    }
    return batch_of(std::move(value), {}, collator);
  }

  bool ended_ = false;
};

}  // namespace etude::detail
