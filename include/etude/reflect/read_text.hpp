#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "etude/reflect/enum.hpp"

/// Reads values from text, by the same rules wherever the text comes from: a command line, an environment
/// variable, a settings file, a JSON string or name=value.
namespace etude::inline v0::detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// A type that defines its form in text, a number or a string. It has `T::from_number` and `T::from_text`
/// (unset for invalid values), `plain_number()` (unset if it needs a string), `text()`, and the descriptions
/// `T::allowed` and, for help texts, `T::placeholder`.
template <class T>
concept SpelledByItself = requires(const T& value, double number, std::string_view text) {
                            { T::from_number(number) } -> std::same_as<std::optional<T>>;
                            { T::from_text(text) } -> std::same_as<std::optional<T>>;
                            { value.plain_number() } -> std::same_as<std::optional<double>>;
                            { value.text() } -> std::same_as<std::string>;
                            std::string_view(T::allowed);
                            std::string_view(T::placeholder);
                          };

/// true, yes, on, t, y and 1, or false, no, off, f, n and 0, ignoring case.
std::optional<bool> read_bool(std::string_view text);

/// Whether `text` is none or null, ignoring case; these unset an optional value.
bool means_unset(std::string_view text);

/// The index of `text` among `names`.
std::optional<std::size_t> read_name(std::string_view text, std::span<const std::string_view> names);

/// Why a text isn't a valid number of a type.
enum class NumberFault { none, not_a_number, not_whole, out_of_range };

/// Reads all of `text` as a number, independently of the locale, as Python's `float` does: blanks around it,
/// a sign, inf, infinity and nan in any case. A number closer to zero than T can hold becomes a zero of its
/// sign. Integers may have a fraction of zeros and an exponent, and are never rounded. Numbers too large for
/// T are refused, where Python, NumPy and pandas read an infinity. Leaves `number` unchanged if it fails.
NumberFault parse_number(std::string_view text, std::int64_t& number);
NumberFault parse_number(std::string_view text, std::uint64_t& number);
NumberFault parse_number(std::string_view text, float& number);
NumberFault parse_number(std::string_view text, double& number);

/// `text` without spaces, tabs and line breaks around it.
std::string_view without_blanks(std::string_view text);

/// `text` without underscores between digits, which Python allows in literals, `int` and `float`; pandas and
/// NumPy don't. Other underscores stay.
std::string without_separators(std::string_view text);

/// Reads all of `text`, which a person wrote, as a number; unset if it isn't one. Underscores may group
/// digits.
template <class T>
std::optional<T> read_number(std::string_view text) {
  if constexpr (std::integral<T>) {
    using Widest = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    Widest number{};
    if (parse_number(without_separators(text), number) != NumberFault::none || !std::in_range<T>(number))
      return std::nullopt;
    return static_cast<T>(number);
  } else {
    T number{};
    if (parse_number(without_separators(text), number) != NumberFault::none) return std::nullopt;
    return number;
  }
}

/// `number` as a T, if T can represent it exactly.
template <std::integral T, class Number>
std::optional<T> exact(Number number) {
  if constexpr (std::floating_point<Number>) {
    // 2^53: beyond it, adjacent integers are the same double.
    if (!(std::abs(number) <= 9007199254740992.0) || std::trunc(number) != number) return std::nullopt;
    return exact<T>(static_cast<std::int64_t>(number));
  } else {
    return std::in_range<T>(number) ? std::optional<T>(static_cast<T>(number)) : std::nullopt;
  }
}

/// Types with a single-text form.
template <class T>
concept OneText = std::same_as<T, std::string> || std::integral<T> || std::floating_point<T> ||
                  ReflectedEnum<T> || SpelledByItself<T>;

/// Parses `text` into `value`; returns false and leaves `value` unchanged if it isn't a valid T.
template <OneText T>
bool read_text(std::string_view text, T& value) {
  std::optional<T> read;
  if constexpr (std::same_as<T, std::string>) {
    read = text;
  } else if constexpr (std::same_as<T, bool>) {
    read = read_bool(text);
  } else if constexpr (std::integral<T> || std::floating_point<T>) {
    read = read_number<T>(text);
  } else if constexpr (ReflectedEnum<T>) {
    if (const auto index = read_name(text, enum_names<T>)) read = static_cast<T>(*index);
  } else {
    const auto number = read_number<double>(text);
    read = number ? T::from_number(*number) : T::from_text(text);
  }
  if (!read) return false;
  value = *std::move(read);
  return true;
}

}  // namespace etude::inline v0::detail
