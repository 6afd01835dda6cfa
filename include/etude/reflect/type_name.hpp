#pragma once

#include <string_view>

namespace etude {

/// The name of `T` as a person writes it, e.g. "etude::StepEnd"; made at compile time from the compiler's own text.
template <class T>
constexpr std::string_view type_name() {
  constexpr auto spell = []<class U>() -> std::string_view { return __PRETTY_FUNCTION__; };
  constexpr std::string_view text = spell.template operator()<T>();
  // GCC writes "... [with U = X; ...]", Clang "... [U = X]".
  constexpr std::string_view key = "U = ";
  constexpr auto begin = text.find(key) + key.size();
  constexpr auto end = text.find_first_of(text.find(';', begin) == text.npos ? "]" : ";", begin);
  return text.substr(begin, end - begin);
}

/// `type_name<T>()` without its namespaces: "StepEnd".
template <class T>
constexpr std::string_view short_type_name() {
  constexpr auto name = type_name<T>();
  constexpr auto head = name.substr(0, name.find('<'));
  constexpr auto colon = head.rfind(':');
  return colon == head.npos ? name : name.substr(colon + 1);
}

}  // namespace etude
