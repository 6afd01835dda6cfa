#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace etude::inline v0 {
namespace detail {

template <class U>
constexpr std::string_view spell_type() {
  std::string_view text = __PRETTY_FUNCTION__;
  // GCC writes "... [with U = X; std::string_view = ...]", Clang "... [U = X]".
  text.remove_prefix(text.find("U = ") + 4);
  return text.substr(0, text.find(';') == text.npos ? text.rfind(']') : text.find(';'));
}

/// GCC spells out this version's inline namespace. It is removed, so names in files stay the same from
/// version to version.
inline constexpr std::string_view inline_namespace = "v0::", versioned_etude = "etude::v0::";

template <class U>
struct UnversionedName {
  constexpr UnversionedName() {
    constexpr auto spelled = spell_type<U>();
    for (std::size_t i = 0; i < spelled.size(); ++i) {
      chars[size++] = spelled[i];
      if (spelled.substr(0, i + 1 + inline_namespace.size()).ends_with(versioned_etude))
        i += inline_namespace.size();
    }
  }
  std::array<char, spell_type<U>().size()> chars{};
  std::size_t size = 0;
};
template <class U>
inline constexpr UnversionedName<U> unversioned_name;

}  // namespace detail

/// The name of `T` as in source code, e.g. "etude::StepEnd"; extracted at compile time from the compiler's
/// text.
template <class T>
constexpr std::string_view type_name() {
  if constexpr (constexpr auto spelled = detail::spell_type<T>();
                spelled.find(detail::versioned_etude) == spelled.npos)
    return spelled;
  else
    return {detail::unversioned_name<T>.chars.data(), detail::unversioned_name<T>.size};
}

/// `type_name<T>()` without namespaces: "StepEnd".
template <class T>
constexpr std::string_view short_type_name() {
  constexpr auto name = type_name<T>();
  constexpr auto colon = name.substr(0, name.find('<')).rfind(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

}  // namespace etude::inline v0
