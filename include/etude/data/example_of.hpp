#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "etude/data/batch.hpp"
#include "etude/data/tensors_of.hpp"

namespace etude::inline v0 {
namespace detail {

template <class T>
concept LabelConvertible = TensorsConvertible<T> || std::is_arithmetic_v<T>;

// torch::data::Example; its target may be void.
template <class T>
concept TorchExample =
    requires(const T& example) {
      typename T::TargetType;
      requires TensorsConvertible<decltype(example.data)>;
      requires std::is_void_v<typename T::TargetType> || LabelConvertible<typename T::TargetType>;
    };

template <class T>
inline constexpr bool is_labelled_tuple = false;
template <template <class...> class Tuple, class First, class... Rest>
inline constexpr bool is_labelled_tuple<Tuple<First, Rest...>> = TupleLike<Tuple<First, Rest...>> &&
                                                                 sizeof...(Rest) > 0 &&
                                                                 TensorsConvertible<First> &&
                                                                 (LabelConvertible<Rest> && ...);

template <LabelConvertible T>
Tensors label_of(const T& label) {
  if constexpr (std::is_integral_v<T>) {
    return torch::full({}, static_cast<std::int64_t>(label), torch::kLong);
  } else if constexpr (std::is_floating_point_v<T>) {
    return torch::full({}, static_cast<double>(label), torch::kFloat);
  } else {
    return tensors_of(label);
  }
}

}  // namespace detail

template <class T>
concept ExampleConvertible = std::same_as<T, Example> || detail::TorchExample<T> ||
                             detail::is_labelled_tuple<T> || TensorsConvertible<T>;

/// Splits `value` into inputs and labels: a torch::data::Example into its data and target; the last element
/// of a pair or tuple is its label (a number becomes an int64 or float32 tensor); anything else with tensors
/// has only inputs, and a data loader may turn some of them into labels by name.
template <ExampleConvertible T>
Example example_of(const T& value) {
  if constexpr (std::same_as<T, Example>) {
    return value;
  } else if constexpr (detail::TorchExample<T>) {
    if constexpr (std::is_void_v<typename T::TargetType>) {
      return {tensors_of(value.data), {}};
    } else {
      return {tensors_of(value.data), detail::label_of(value.target)};
    }
  } else if constexpr (detail::is_labelled_tuple<T>) {
    constexpr auto last = std::tuple_size_v<T> - 1;
    auto label = detail::label_of(std::get<last>(value));
    if constexpr (last == 1) {
      return {tensors_of(std::get<0>(value)), std::move(label)};
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>)->Example {
        return {tensors_of(std::tie(std::get<I>(value)...)), std::move(label)};
      }
      (std::make_index_sequence<last>());
    }
  } else {
    return {tensors_of(value), {}};
  }
}

}  // namespace etude::inline v0
