#pragma once

#include <ATen/core/Generator.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/collate.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/example_of.hpp"
#include "etude/data/failed_example.hpp"
#include "etude/data/random.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0::detail {

/// The source inside a Dataset. Indexed sources override `fetch`, streams `next` and `reset`.
struct DatasetSource {
  virtual ~DatasetSource() = default;
  virtual std::optional<std::int64_t> size() const = 0;
  virtual bool is_indexed() const = 0;
  /// True if `fetch` collates examples, rather than asking the dataset for whole batches.
  virtual bool makes_examples() const { return false; }
  /// The number of examples that every batch must have, if each row continues the same row of the previous
  /// batch.
  virtual std::optional<std::int64_t> streams() const { return std::nullopt; }
  /// `seed` seeds the generator of each example, if `get` takes one.
  virtual Batch fetch(std::span<const std::int64_t>, const DataCollator&, std::uint64_t seed);
  virtual std::optional<Batch> next(std::int64_t, const DataCollator&);
  virtual void reset() {}
  /// True if `state` and `load_state` work.
  virtual bool has_state() const { return false; }
  virtual DatasetState state() { return {}; }
  virtual void load_state(const DatasetState&) {}
  virtual std::shared_ptr<DatasetSource> copy() const = 0;
  /// A checksum of a few examples if they can be read without user code; otherwise empty.
  virtual std::string fingerprint() const { return {}; }
};

/// A checksum of the types, shapes and first values of a few examples out of `size`.
std::string fingerprint_of(std::int64_t size, const std::function<Example(std::int64_t)>& example);

Batch collate(std::vector<Example> examples, std::span<const std::int64_t> indices,
              const DataCollator& collator);

template <class T>
concept ExampleRange =
    std::ranges::sized_range<const T> && ExampleConvertible<std::ranges::range_value_t<const T>>;

/// Makes a batch from the result of a torch dataset's get_batch: examples, or tensors that its transforms
/// have already stacked.
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
                  "the get_batch of this dataset must return a vector of examples, an Example of stacked "
                  "tensors or an etude::Batch");
    if (collator) {
      throw ArgumentError(
          "data_collator: must not be set, because the dataset returns whole batches, not examples");
    }
    if constexpr (std::same_as<Value, Batch>) {
      return value.size > 0 ? value : make_batch(value.inputs, value.labels);
    } else {
      auto [inputs, labels] = example_of(value);
      return make_batch(std::move(inputs), std::move(labels));
    }
  }
}

// Converts to the index type that the dataset's `get` takes.
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
/// A getter whose `get` takes a generator for its random numbers.
template <class T>
concept RandomGetter =
    requires(T& source, ExampleIndex index, at::Generator& generator) {
      source.size();
      requires ExampleConvertible<std::remove_cvref_t<decltype(source.get(index, generator))>>;
    };
template <class T>
concept ExampleVector = std::ranges::random_access_range<T> && ExampleRange<T>;
template <class T>
concept Generator = requires(T& source) {
                      { source.next() } -> OptionalLike;
                      requires ExampleConvertible<std::remove_cvref_t<decltype(*source.next())>>;
                    };

/// Converts a size to int64. It saturates, so a number that is too large gives the largest int64.
template <class Size>
std::optional<std::int64_t> example_count(const Size& size) {
  constexpr bool is_count = std::integral<Size> && !std::same_as<Size, bool>;
  if constexpr (OptionalLike<Size>) {
    return size.has_value() ? example_count(*size) : std::nullopt;
  } else {
    static_assert(is_count, "etude: a dataset's size() must return an integer or an optional integer");
    constexpr std::uintmax_t most = std::numeric_limits<std::int64_t>::max();
    if constexpr (std::unsigned_integral<Size>)
      return static_cast<std::int64_t>(std::min<std::uintmax_t>(size, most));
    else if constexpr (is_count)
      return static_cast<std::int64_t>(size);
    else
      return std::nullopt;
  }
}

template <class T>
std::optional<std::int64_t> size_of(T& source) {
  if constexpr (requires { source.size(); })
    return example_count(source.size());
  else
    return std::nullopt;
}

/// Tensors whose first dimension is the number of examples. Throws DataError if these numbers differ.
std::shared_ptr<DatasetSource> tensor_source(Tensors inputs, Tensors labels);

[[noreturn]] void throw_cannot_be_copied(std::string_view dataset);

template <class T>
class OwnedSource : public DatasetSource {
 public:
  explicit OwnedSource(T source) : source_(std::move(source)) {}

  // Mutable for a non-const `size()` or `get`.
  std::optional<std::int64_t> size() const override { return size_of(source_); }

 protected:
  mutable T source_;
};

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

/// A dataset accessed by index.
template <class T>
class IndexedSource final : public OwnedSource<T> {
 public:
  static_assert(
      !has_dataset_state<T>,
      "etude: the state of a dataset with an index isn't saved, because its position is an example "
      "number: remove state() and load_state(); for random numbers use get(index, torch::Generator&)");
  using OwnedSource<T>::OwnedSource;

  bool is_indexed() const override { return true; }
  bool makes_examples() const override {
    if constexpr (TorchIndexed<T> && !RandomGetter<T>)
      return ExampleRange<std::remove_cvref_t<decltype(std::declval<T&>().get_batch(
          std::declval<typename T::BatchRequestType>()))>>;
    else
      return true;
  }
  std::shared_ptr<DatasetSource> copy() const override {
    if constexpr (std::copy_constructible<T>) {
      return std::make_shared<IndexedSource>(*this);
    } else {
      throw_cannot_be_copied(type_name<T>());
    }
  }

  std::string fingerprint() const override {
    if constexpr (requires(const T& source) {
                    { source.fingerprint() } -> std::convertible_to<std::string>;
                  })
      return this->source_.fingerprint();
    else if constexpr (is_vector<T>)
      return fingerprint_of(*this->size(), [this](std::int64_t i) {
        return example_of(this->source_[static_cast<std::size_t>(i)]);
      });
    else
      return {};
  }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator,
              std::uint64_t seed) override {
    if constexpr (TorchIndexed<T> && !RandomGetter<T>) {
      const std::vector<std::size_t> request(indices.begin(), indices.end());
      return batch_of(
          this->source_.get_batch(typename T::BatchRequestType(c10::ArrayRef<std::size_t>(request))), indices,
          collator);
    } else {
      std::vector<Example> examples;
      examples.reserve(indices.size());
      for (const auto i : indices) {
        try {
          examples.push_back(get(i, seed));
        } catch (...) {
          last_failed_example() = {std::current_exception(), i};
          throw;
        }
      }
      return collate(std::move(examples), indices, collator);
    }
  }

 private:
  Example get(std::int64_t i, std::uint64_t seed) {
    if constexpr (RandomGetter<T>) {
      return example_of(this->source_.get(ExampleIndex{i}, example_generator(seed, i)));
    } else if constexpr (Getter<T>) {
      return example_of(this->source_.get(ExampleIndex{i}));
    } else {
      return example_of(this->source_[static_cast<std::size_t>(i)]);
    }
  }
};

/// Lets only one thread at a time read a stream, since a thread that a loader abandoned may still be stuck in
/// it.
class Turns {
 public:
  /// Waits until no other thread has the turn; throws `Interrupted` if the training is interrupted meanwhile.
  /// In a child made by fork(), throws Error if the turn belongs to a thread that doesn't exist there.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) { turns_.begin(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { turns_.taken_in_.store(nowhere, std::memory_order_release); }

   private:
    Turns& turns_;
  };

 private:
  static constexpr int nowhere = -1;
  void begin();

  std::atomic<int> taken_in_ = nowhere;  // fork_count() of the process whose thread has the turn
};

/// A dataset that is read sequentially. After its end it isn't called again before `reset`.
template <class T>
class StreamSource final : public OwnedSource<T> {
 public:
  static_assert(
      has_dataset_state<T> || !means_to_keep_dataset_state<T>,
      "etude: a stream dataset's state is only saved if it has, in public, etude::DatasetState state() "
      "const and void load_state(const etude::DatasetState&), or both with nlohmann::ordered_json");
  using OwnedSource<T>::OwnedSource;

  bool is_indexed() const override { return false; }
  std::shared_ptr<DatasetSource> copy() const override {
    throw DataError("a stream dataset can't be split among workers");
  }

  void reset() override {
    const Turns::Turn turn(turns_);
    if constexpr (requires { this->source_.reset(); })
      this->source_.reset();
    else
      static_assert(
          !requires { &T::reset; }, "etude: a stream dataset's reset() must not take arguments");
    ended_ = false;
  }

  bool has_state() const override { return has_dataset_state<T>; }

  DatasetState state() override {
    DatasetState state;
    if constexpr (has_dataset_state<T>) {
      const Turns::Turn turn(turns_);
      state = state_of(std::as_const(this->source_));
      state.ended = ended_;
    }
    return state;
  }

  void load_state(const DatasetState& state) override {
    if constexpr (has_dataset_state<T>) {
      const Turns::Turn turn(turns_);
      load_state_of(this->source_, state);
      ended_ = state.ended;
    }
  }

  std::optional<Batch> next(std::int64_t batch_size, const DataCollator& collator) override {
    const Turns::Turn turn(turns_);
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
  Turns turns_;
};

}  // namespace etude::inline v0::detail
