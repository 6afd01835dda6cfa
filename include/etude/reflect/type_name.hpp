#pragma once

#include <string_view>

namespace etude {
namespace detail {

template <class U>
constexpr std::string_view spell_type() {
  std::string_view text = __PRETTY_FUNCTION__;
  // GCC writes "... [with U = X; std::string_view = ...]", Clang "... [U = X]".
  text.remove_prefix(text.find("U = ") + 4);
  return text.substr(0, text.find(';') == text.npos ? text.rfind(']') : text.find(';'));
}

}  // namespace detail

/// The name of `T` as in source code, e.g. "etude::StepEnd"; extracted at compile time from the compiler's
/// own text.
template <class T>
constexpr std::string_view type_name() {
  return detail::spell_type<T>();
}

/// `type_name<T>()` without namespaces: "StepEnd".
template <class T>
constexpr std::string_view short_type_name() {
  constexpr auto name = type_name<T>();
  constexpr auto colon = name.substr(0, name.find('<')).rfind(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

}  // namespace etude
