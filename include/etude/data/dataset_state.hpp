#pragma once

#include <torch/types.h>

#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "etude/reflect/own_state.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The state of a stream dataset between two examples: what its `state()` gave.
struct DatasetState {
  ETUDE_STRUCT(DatasetState, (nlohmann::ordered_json, values, "everything but tensors"),
               (bool, ended, "it has no more examples; set by Dataset", false));
  std::map<std::string, torch::Tensor> tensors = {};
};

namespace detail {

template <class T>
concept KeepsDatasetState = requires(const T& saved, T& loaded, const DatasetState& state) {
                              { saved.state() } -> std::same_as<DatasetState>;
                              loaded.load_state(state);
                            };

template <class T>
inline constexpr bool has_dataset_state = KeepsDatasetState<T> || KeepsOwnState<T>;

/// Has a part of such a state, in a form that isn't coincidental.
template <class T>
concept means_to_keep_dataset_state =
    means_to_keep_state<T> ||
    requires(T& saved) {
      requires std::same_as<std::remove_cvref_t<decltype(saved.state())>, DatasetState>;
    } || requires(T& loaded, const DatasetState& state) { loaded.load_state(state); };

/// The state with tensors that nobody else changes.
inline DatasetState copy_of(DatasetState state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  return state;
}

template <class T>
DatasetState state_of(const T& dataset) {
  if constexpr (KeepsDatasetState<T>)
    return copy_of(dataset.state());
  else
    return {.values = dataset.state()};
}

template <class T>
void load_state_of(T& dataset, const DatasetState& state) {
  if constexpr (KeepsDatasetState<T>)
    dataset.load_state(copy_of(state));
  else
    dataset.load_state(state.values);
}

}  // namespace detail
}  // namespace etude::inline v0
