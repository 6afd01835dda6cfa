#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "etude/data/batch.hpp"
#include "etude/data/tensors_of.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0::detail {

inline constexpr std::size_t max_forward_tensors = 8;

template <class M, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return requires(M & module, const torch::Tensor& tensor) {
           module.forward((static_cast<void>(I), tensor)...);
         };
}

/// Element n is true if `forward` takes n tensors.
template <class M>
inline constexpr auto forward_takes = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array{false, takes_tensors<M>(std::make_index_sequence<I + 1>())...};
}
(std::make_index_sequence<max_forward_tensors>());

// Converts to T, but not to anything that T converts to, since only one user-defined conversion is allowed.
template <class T>
struct OnlyFrom {
  operator const T&() const;
};

// Templates aren't tested: they accept anything, and their bodies may not compile for all types.
template <class M, class T>
concept ForwardTakesWhole = requires(M& module, const OnlyFrom<T>& value) {
                              &M::forward;
                              module.forward(value);
                            };

template <class M>
concept HasForward = ForwardTakesWhole<M, Tensors> || ForwardTakesWhole<M, Batch> ||
                     std::ranges::count(forward_takes<M>, true) > 0;

struct ForwardProbe {
  void forward();
};
template <class M>
struct WithForwardProbe : M, ForwardProbe {};

/// True if M has any `forward`, even a private one: the name is then ambiguous in a class that also derives
/// from another class with a `forward`. A final class can't be a base, so only a public, non-overloaded
/// `forward` is found there.
template <class M>
consteval bool names_forward() {
  if constexpr (std::is_final_v<M>)
    return requires { &M::forward; };
  else
    return !requires { &WithForwardProbe<M>::forward; };
}

/// A module without a `forward`, on purpose: for example, only `compute_loss` knows how its parts are used.
/// torch::nn::Module itself is excluded, since the base class doesn't tell.
template <class M>
concept HasNoForward = !
HasForward<M> && !std::same_as<M, torch::nn::Module> && !names_forward<M>();

template <class M, std::size_t... I>
decltype(auto) forward_first(M& module, const Tensors& inputs, std::index_sequence<I...>) {
  return module.forward(inputs[I]...);
}

[[noreturn]] void throw_forward_does_not_take(std::string_view module, const Tensors& inputs);

/// Returns `use(module.forward(inputs...))`. Throws DataError if forward doesn't accept that number of
/// inputs.
template <class Result, std::size_t N = 1, class M, class Use>
Result forward_all(M& module, const Tensors& inputs, Use use) {
  if constexpr (N > max_forward_tensors) {
    throw_forward_does_not_take(type_name<M>(), inputs);
  } else {
    if constexpr (forward_takes<M>[N]) {
      if (inputs.size() == N) return use(forward_first(module, inputs, std::make_index_sequence<N>()));
    }
    return forward_all<Result, N + 1>(module, inputs, std::move(use));
  }
}

}  // namespace etude::inline v0::detail
