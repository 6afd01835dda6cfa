#include "etude/reflect/read_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <locale>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0::detail {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

namespace number_parsing {

namespace {

/// `text` without surrounding blanks and without a plus, which from_chars doesn't accept.
std::string_view unpadded(std::string_view text) {
  text = without_blanks(text);
  return text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Reads a number; fails unless from_chars reads all of `text`.
template <class T>
std::errc from_chars(std::string_view text, T& value) {
#ifndef __cpp_lib_to_chars
  if constexpr (std::floating_point<T>) {
    // Older libc++ parses only integers with from_chars.
    std::istringstream stream{std::string(text)};
    stream.imbue(std::locale::classic());
    if (stream >> std::noskipws >> value && stream.peek() == std::istringstream::traits_type::eof())
      return std::errc();
    return std::abs(value) == std::numeric_limits<T>::max() ? std::errc::result_out_of_range
                                                            : std::errc::invalid_argument;
  } else
#endif
  {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return end != text.data() + text.size() ? std::errc::invalid_argument : error;
  }
}

/// A decimal number: 0.DIGITS times 10 to the power of `point`; no digits for zero.
struct Decimal {
  std::string digits;
  std::int64_t point = 0;
};

/// `text` must be a decimal number that from_chars accepts, without a sign.
Decimal decimal(std::string_view text) {
  const auto letter = text.find_first_of("eE");
  const auto mantissa = text.substr(0, letter);
  std::int64_t exponent = 0;
  if (letter != text.npos) {
    auto written = text.substr(letter + 1);
    if (written.starts_with('+')) written.remove_prefix(1);
    if (from_chars(written, exponent) != std::errc() || std::abs(exponent) > INT32_MAX)
      exponent = written.starts_with('-') ? -std::int64_t{INT32_MAX} : INT32_MAX;
  }
  Decimal result{.digits = {}, .point = exponent};
  bool before_point = true;
  for (const char c : mantissa) {
    if (c == '.') {
      before_point = false;
    } else if (result.digits.empty() && c == '0') {
      if (!before_point) --result.point;
    } else {
      result.digits += c;
      if (before_point) ++result.point;
    }
  }
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  return result;
}

template <std::integral T>
NumberFault parse_whole(std::string_view text, T& number) {
  auto error = from_chars(text, number);
  if (error == std::errc()) return NumberFault::none;
  double any = 0;
  const auto as_double = from_chars(text, any);
  if (as_double == std::errc::invalid_argument) return NumberFault::not_a_number;
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (!is_digit(text[0]) && text[0] != '.') return NumberFault::not_whole;  // inf and nan
  const auto [digits, point] = decimal(text);
  if (digits.empty()) return number = 0, NumberFault::none;
  const auto size = static_cast<std::int64_t>(digits.size());
  if (size > point) return NumberFault::not_whole;
  if (point > std::numeric_limits<T>::digits10 + 1) return NumberFault::out_of_range;
  const auto written =
      (is_negative ? "-" : "") + digits + std::string(static_cast<std::size_t>(point - size), '0');
  error = from_chars(written, number);
  return error == std::errc() ? NumberFault::none : NumberFault::out_of_range;
}

template <std::floating_point T>
NumberFault parse_floating(std::string_view text, T& number) {
  T read{};
  const auto error = from_chars(text, read);
  if (error == std::errc::invalid_argument || text.ends_with(')'))
    return NumberFault::not_a_number;  // "nan(1)"
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  const bool is_decimal = is_digit(text[0]) || text[0] == '.';
  if (error == std::errc() && !(is_decimal && std::isinf(read))) return number = read, NumberFault::none;
  if (decimal(text).point > 0) return NumberFault::out_of_range;
  return number = is_negative ? T{-0.0} : T{0}, NumberFault::none;
}

}  // namespace

}  // namespace number_parsing

NumberFault parse_number(std::string_view text, std::int64_t& number) {
  return number_parsing::parse_whole(number_parsing::unpadded(text), number);
}
NumberFault parse_number(std::string_view text, std::uint64_t& number) {
  return number_parsing::parse_whole(number_parsing::unpadded(text), number);
}
NumberFault parse_number(std::string_view text, float& number) {
  return number_parsing::parse_floating(number_parsing::unpadded(text), number);
}
NumberFault parse_number(std::string_view text, double& number) {
  return number_parsing::parse_floating(number_parsing::unpadded(text), number);
}

std::string without_separators(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool separates = text[i] == '_' && i > 0 && i + 1 < text.size() &&
                           number_parsing::is_digit(text[i - 1]) && number_parsing::is_digit(text[i + 1]);
    if (!separates) result += text[i];
  }
  return result;
}

std::optional<bool> read_bool(std::string_view text) {
  const auto word = lower_case(text);
  for (const auto* yes : {"true", "yes", "on", "t", "y", "1"})
    if (word == yes) return true;
  for (const auto* no : {"false", "no", "off", "f", "n", "0"})
    if (word == no) return false;
  return std::nullopt;
}

bool means_unset(std::string_view text) {
  const auto word = lower_case(text);
  return word == "none" || word == "null";
}

std::optional<std::size_t> read_name(std::string_view text, std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace etude::inline v0::detail
