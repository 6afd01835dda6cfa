#pragma once

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "etude/reflect/for_each_argument.hpp"
#include "etude/reflect/type_name.hpp"

/// `ETUDE_ENUM(SaveStrategy, no, steps, epoch, best)` defines the enum class and its names, at namespace
/// scope. Enumerators are 0, 1, 2, ... and have the same names in JSON, on the command line and in `fmt`.
#define ETUDE_ENUM(Enum, ...)                                          \
  enum class Enum { __VA_ARGS__ };                                     \
  [[maybe_unused]] constexpr auto etude_enum_names(Enum) {             \
    return ::std::to_array<::std::string_view>(                        \
        {ETUDE_FOR_EACH(ETUDE_DETAIL_ENUMERATOR, Enum, __VA_ARGS__)}); \
  }

#define ETUDE_DETAIL_ENUMERATOR(Enum, name) #name,

namespace etude::inline v0 {

/// An enum defined by ETUDE_ENUM.
template <class E>
concept ReflectedEnum = std::is_enum_v<E> && requires(E e) { etude_enum_names(e); };

/// All names of `E`, in the order of definition.
template <ReflectedEnum E>
inline constexpr auto enum_names = etude_enum_names(E{});

namespace detail {
[[noreturn]] void throw_no_enumerator(std::string_view type, std::int64_t value,
                                      std::span<const std::string_view> names);
[[noreturn]] void throw_no_enumerator(std::string_view type, std::string_view name,
                                      std::span<const std::string_view> names);
}  // namespace detail

/// The name of `value`. Throws ArgumentError for a number that isn't an enumerator.
template <ReflectedEnum E>
constexpr std::string_view to_string(E value) {
  const auto index = static_cast<std::size_t>(value);
  if (index < enum_names<E>.size()) return enum_names<E>[index];
  detail::throw_no_enumerator(short_type_name<E>(), static_cast<std::int64_t>(value), enum_names<E>);
}

/// The enumerator called `name`. Throws an ArgumentError that lists the names and suggests the nearest.
template <ReflectedEnum E>
constexpr E from_string(std::string_view name) {
  for (std::size_t i = 0; i < enum_names<E>.size(); ++i) {
    if (enum_names<E>[i] == name) return static_cast<E>(i);
  }
  detail::throw_no_enumerator(short_type_name<E>(), name, enum_names<E>);
}

}  // namespace etude::inline v0

template <etude::ReflectedEnum E>
struct fmt::formatter<E> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(E value, Context& context) const {
    return fmt::formatter<std::string_view>::format(etude::to_string(value), context);
  }
};
