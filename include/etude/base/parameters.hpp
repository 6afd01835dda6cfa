#pragma once

#include <functional>
#include <tuple>
#include <type_traits>

namespace etude::inline v0::detail {

/// The types of a function's parameters, without references, from a `std::function` or a member function.
template <class F>
struct Parameters;
template <class R, class... Args>
struct Parameters<std::function<R(Args...)>> {
  using Types = std::tuple<std::remove_cvref_t<Args>...>;
};
template <class R, class M, class... Args>
struct Parameters<R (M::*)(Args...)> : Parameters<std::function<R(Args...)>> {};
template <class R, class M, class... Args>
struct Parameters<R (M::*)(Args...) const> : Parameters<std::function<R(Args...)>> {};

}  // namespace etude::inline v0::detail
