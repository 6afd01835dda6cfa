#pragma once

#include <torch/types.h>

#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "etude/reflect/own_state.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The state of a stream dataset between two examples, as its `state()` returns it.
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

/// Converts to JSON only, unlike JSON itself, which converts to strings, numbers and more.
struct OnlyJson {
  operator nlohmann::json() const;
  operator nlohmann::ordered_json() const;
};

template <class T>
concept KeepsJsonState = requires(const T& saved, T& loaded, const OnlyJson& json) {
                           requires is_json<std::remove_cvref_t<decltype(saved.state())>>;
                           loaded.load_state(json);
                         };

template <class T>
inline constexpr bool has_dataset_state = KeepsDatasetState<T> || KeepsJsonState<T>;

/// True if T has part of the state interface. Methods with these names but other types serve another purpose.
template <class T>
concept means_to_keep_dataset_state =
    requires(T& saved) {
      requires is_json<std::remove_cvref_t<decltype(saved.state())>> ||
                   std::same_as<std::remove_cvref_t<decltype(saved.state())>, DatasetState>;
    } || requires(T& saved) { requires is_json<std::remove_cvref_t<decltype(saved.state_dict())>>; } ||
    requires(T& loaded, const OnlyJson& json) { loaded.load_state(json); } ||
    requires(T& loaded, const DatasetState& state) { loaded.load_state(state); };

/// Copies the state's tensors, so that nobody else changes them.
inline DatasetState copy_of(DatasetState state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  return state;
}

template <class T>
DatasetState state_of(const T& dataset) {
  if constexpr (KeepsDatasetState<T> && requires { requires T::state_is_constant; })
    return dataset.state();
  else if constexpr (KeepsDatasetState<T>)
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
