#include "etude/reflect/interval.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Parses and removes a number at the start of `text`.
std::optional<double> take_number(std::string_view& text) {
  const auto is_part = [&](std::size_t i) {
    if (i == text.size()) return false;
    if (text[i] == 'e' || text[i] == 'E')
      return i + 1 < text.size() && std::string_view("+-0123456789").find(text[i + 1]) != text.npos;
    return std::string_view("+-._0123456789").find(text[i]) != text.npos;
  };
  std::size_t end = 0;
  while (is_part(end)) ++end;
  const auto number = read_number<double>(text.substr(0, end));
  text.remove_prefix(end);
  return number;
}

std::string_view take_letters(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && text[end] >= 'a' && text[end] <= 'z') ++end;
  const auto letters = text.substr(0, end);
  text.remove_prefix(end);
  return letters;
}

std::optional<double> seconds_in(std::string_view unit) {
  using Unit = std::pair<std::string_view, double>;
  static constexpr std::array<Unit, 7> units{
      {{"d", 86400}, {"h", 3600}, {"min", 60}, {"m", 60}, {"s", 1}, {"sec", 1}, {"ms", 0.001}}};
  for (const auto& [name, seconds] : units)
    if (name == unit) return seconds;
  return {};
}

/// Indexed by IntervalUnit, except for seconds, which have several suffixes.
constexpr std::array<std::string_view, 5> unit_suffixes{"ba", "dur", "ep", "sp", "tok"};

std::string spell_seconds(double seconds) {
  std::string text;
  const std::pair<double, char> units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}};
  for (const auto& [size, letter] : units) {
    const auto count = std::floor(seconds / size);
    if (!(count >= 1 && count < 1e9)) continue;
    text += fmt::format("{}{}", static_cast<std::int64_t>(count), letter);
    seconds -= count * size;
  }
  if (seconds != 0 || text.empty()) text += fmt::format("{}s", seconds);
  return text;
}

}  // namespace

}  // namespace detail

Interval Interval::parse(std::string_view text) {
  if (const auto read = from_text(text)) return *read;
  throw ArgumentError(fmt::format("the interval is '{}': must be {}", text, allowed));
}

std::optional<Interval> Interval::from_text(std::string_view text) {
  text = detail::without_blanks(text);
  const auto number = detail::take_number(text);
  if (!number) return {};
  if (text.empty()) return plain(*number);
  auto letters = detail::take_letters(text);
  if (const auto* suffix = std::ranges::find(detail::unit_suffixes, letters);
      suffix != detail::unit_suffixes.end()) {
    if (!text.empty()) return {};
    return Interval(*number, static_cast<IntervalUnit>(suffix - detail::unit_suffixes.begin()));
  }
  double seconds = 0, larger = 0;
  for (auto part = number; part; part = detail::take_number(text), letters = detail::take_letters(text)) {
    const auto size = detail::seconds_in(letters);
    if (!size || (larger != 0 && (*size >= larger || *part < 0))) return {};  // "30m1h", "1h1h", "1h-5m"
    seconds += *part * *size;
    larger = *size;
    if (text.empty()) return Interval(seconds, IntervalUnit::seconds);
  }
  return {};
}

std::optional<double> Interval::plain_number() const {
  if (unit_ == IntervalUnit::steps && !(value_ > 0 && value_ < 1)) return value_;
  if (unit_ == IntervalUnit::share && value_ > 0 && value_ < 1) return value_;
  return {};
}

std::string Interval::text() const {
  if (const auto number = plain_number()) return fmt::format("{}", *number);
  if (unit_ == IntervalUnit::seconds) return detail::spell_seconds(value_);
  return fmt::format("{}{}", value_, detail::unit_suffixes.at(static_cast<std::size_t>(unit_)));
}

std::ostream& operator<<(std::ostream& out, const Interval& interval) { return out << interval.text(); }

bool Interval::is_valid() const {
  if (!(std::isfinite(value_) && value_ > 0)) return false;
  if (unit_ == IntervalUnit::share) return value_ <= 1;
  if (unit_ == IntervalUnit::steps) return value_ == std::floor(value_) && value_ < detail::largest_whole;
  return true;
}

std::string_view Interval::valid_values() const {
  if (is_of_steps()) return "a whole number of steps >= 1, or a fraction of all steps between 0 and 1";
  return "positive and finite";
}

std::int64_t Interval::steps(std::int64_t max_steps) const {
  if (!is_valid() || !is_of_steps()) return 0;
  return static_cast<std::int64_t>(unit_ == IntervalUnit::share
                                       ? detail::share_rounded_up(value_, static_cast<double>(max_steps))
                                       : value_);
}

}  // namespace etude::inline v0
