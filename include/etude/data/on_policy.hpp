#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/data/example_of.hpp"
#include "etude/data/shuffle.hpp"

namespace etude::inline v0 {

struct OnPolicyOptions {
  /// The number of examples that each call of `collect` returns. Unset if it varies; a training then needs
  /// `max_steps`.
  std::optional<std::int64_t> examples = {};
  /// How many times an epoch goes over these examples.
  std::int64_t passes = 1;
  /// If true, each pass has its own order, determined by (seed, passes so far).
  bool shuffle = true;
  std::uint64_t seed = 42;
};

/// A dataset whose examples are produced by the model being trained, such as the rollouts of a policy. It
/// calls `collect()` once at the beginning of each epoch, after the last update of the previous one, and the
/// epoch goes over the examples that it returns. Workers don't read ahead of that update, so the examples
/// come from the model as it is when the epoch begins.
///
/// `collect()` returns examples stacked along the first dimension, in any form that `example_of` takes. It is
/// called with the model in training mode, and usually needs a torch::NoGradGuard. Checkpoints save the
/// examples, so that a resumed epoch has the same ones. They also save the state of `collect` (of its
/// environment, for example) if it has `state()` and `load_state(...)` as stream datasets do. `collect` may
/// draw from LibTorch's generators, which are restored as for any training.
///
/// With several processes, each collects the same number of examples and uses only its part of them.
template <class Collect>
class OnPolicyDataset {
  static_assert(
      requires(Collect & collect) { requires ExampleConvertible<std::remove_cvref_t<decltype(collect())>>; },
      "etude: collect() of an OnPolicyDataset returns stacked examples: a tensor, or a pair, tuple or "
      "string-keyed map of them");

 public:
  using BatchType = std::optional<Batch>;
  using BatchRequestType = std::size_t;
  /// The state's tensors are replaced, never written to.
  static constexpr bool state_is_constant = true;

  /// Throws ArgumentError for numbers less than 1.
  explicit OnPolicyDataset(Collect collect, OnPolicyOptions options = {})
      : collect_(std::move(collect)), options_(std::move(options)) {
    const auto check = [](const char* name, std::int64_t value) {
      if (value < 1) throw ArgumentError(fmt::format("{} is {}: must be at least 1", name, value));
    };
    check("passes", options_.passes);
    if (options_.examples) check("examples", *options_.examples);
  }

  /// The examples in an epoch, if known.
  std::optional<std::size_t> size() const {
    if (!options_.examples) return std::nullopt;
    return static_cast<std::size_t>(*options_.examples * options_.passes);
  }

  /// Collects new examples. Throws DataError if their number isn't `OnPolicyOptions::examples`.
  void reset() {
    auto [inputs, labels] = example_of(collect_());
    take(std::move(inputs), std::move(labels));
    if (options_.examples && collected_.size != *options_.examples)
      throw DataError(
          fmt::format("collect() returned {} examples: must be {}, as OnPolicyOptions::examples says",
                      collected_.size, *options_.examples));
    read_ = 0;
    ++collections_;
  }

  /// The next examples, fewer at the end of an epoch; unset after it.
  std::optional<Batch> get_batch(std::size_t size) {
    const auto count = std::min(static_cast<std::int64_t>(size), collected_.size * options_.passes - read_);
    if (count <= 0) return std::nullopt;
    std::vector<std::int64_t> rows;
    while (static_cast<std::int64_t>(rows.size()) < count) {
      const auto pass = read_ / collected_.size, place = read_ % collected_.size;
      const detail::KeyedPermutation order(collected_.size, options_.seed,
                                           (collections_ - 1) * options_.passes + pass);
      rows.push_back(options_.shuffle ? order[place] : place);
      ++read_;
    }
    const auto index = torch::tensor(rows);
    const auto pick = [&](const torch::Tensor& all) { return all.index_select(0, index.to(all.device())); };
    return Batch{collected_.inputs.transform(pick), collected_.labels.transform(pick), count};
  }

  DatasetState state() const {
    DatasetState state{.values = {{"collections", collections_}, {"read", read_}}};
    const auto save = [&](const char* kind, const Tensors& tensors) {
      for (std::size_t i = 0; i < tensors.size(); ++i)
        state.tensors.emplace(fmt::format("{}.{}", kind, i), tensors[i].detach());
      state.values[kind] = tensors.names();
    };
    save("inputs", collected_.inputs);
    save("labels", collected_.labels);
    if constexpr (detail::has_dataset_state<Collect>) {
      const auto own = detail::state_of(collect_);
      state.values["collect"] = own.values;
      for (const auto& [name, tensor] : own.tensors) state.tensors.emplace("collect." + name, tensor);
    }
    return state;
  }

  void load_state(const DatasetState& state) {
    collections_ = state.values.at("collections").template get<std::int64_t>();
    read_ = state.values.at("read").template get<std::int64_t>();
    if (collections_ < 0 || read_ < 0)
      throw CheckpointError(
          fmt::format("collections is {} and read is {}: must be at least 0", collections_, read_));
    const auto load = [&](const char* kind) {
      std::vector<torch::Tensor> tensors;
      for (std::size_t i = 0; state.tensors.contains(fmt::format("{}.{}", kind, i)); ++i)
        tensors.push_back(state.tensors.at(fmt::format("{}.{}", kind, i)));
      return Tensors(std::move(tensors), state.values.at(kind).template get<std::vector<std::string>>());
    };
    auto inputs = load("inputs"), labels = load("labels");
    if (!inputs.empty() || !labels.empty()) take(std::move(inputs), std::move(labels));
    if constexpr (detail::has_dataset_state<Collect>) {
      DatasetState own{.values = state.values.at("collect")};
      constexpr std::string_view prefix = "collect.";
      for (const auto& [name, tensor] : state.tensors)
        if (name.starts_with(prefix)) own.tensors.emplace(name.substr(prefix.size()), tensor);
      detail::load_state_of(collect_, own);
    }
  }

 private:
  void take(Tensors inputs, Tensors labels) {
    const auto as_data = [](const torch::Tensor& tensor) { return tensor.detach(); };
    collected_ = make_batch(inputs.transform(as_data), labels.transform(as_data));
    detail::check_row_per_example(collected_, "in what collect() returned, ");
  }

  Collect collect_;
  OnPolicyOptions options_;
  Batch collected_;
  std::int64_t read_ = 0;         // examples of the epoch read so far
  std::int64_t collections_ = 0;  // calls of `collect`
};

}  // namespace etude::inline v0
