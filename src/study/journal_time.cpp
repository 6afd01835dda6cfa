#include "etude/study/journal_time.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string journal_time() {
  const auto now = std::chrono::system_clock::now();
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}+00:00",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), microseconds);
}

std::optional<double> seconds_of_journal_time(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00:00", fraction = ".000000", offset = "+00:00";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto fits = [&](std::string_view part, std::string_view its_form) {
    if (part.size() != its_form.size()) return false;
    for (std::size_t i = 0; i < part.size(); ++i)
      if (its_form[i] == '0' ? !is_digit(part[i]) : part[i] != its_form[i]) return false;
    return true;
  };
  const auto number = [&](std::size_t begin, std::size_t size) {
    int value = 0;
    for (const char c : text.substr(begin, size)) value = value * 10 + (c - '0');
    return value;
  };
  if (text.ends_with(offset)) text.remove_suffix(offset.size());
  const bool has_fraction = text.size() == form.size() + fraction.size();
  if (has_fraction && !fits(text.substr(form.size()), fraction)) return {};
  if (!fits(text.substr(0, has_fraction ? form.size() : text.npos), form)) return {};
  const std::chrono::year_month_day day(std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const int hours = number(11, 2), minutes = number(14, 2), seconds = number(17, 2);
  if (!day.ok() || number(0, 4) < 1 || hours > 23 || minutes > 59 || seconds > 59) return {};
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  const auto whole = static_cast<double>(days) * 86400 + hours * 3600 + minutes * 60 + seconds;
  return has_fraction ? whole + number(form.size() + 1, 6) / 1e6 : whole;
}

}  // namespace etude::inline v0::detail
