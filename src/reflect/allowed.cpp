#include "etude/reflect/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

std::string Allowed::text(bool must_say_finite) const {
  if (is_not_empty_) return "not empty";
  if (!names_.empty()) return fmt::format("one of {}", fmt::join(names_, ", "));
  if (!is_number_) return "";
  const bool has_least = std::isfinite(least_), has_most = std::isfinite(most_);
  std::string text;
  if (has_least && has_most && with_least_ && with_most_) {
    text = fmt::format("from {} to {}", least_, most_);
  } else {
    if (has_least) text = fmt::format("{} {}", with_least_ ? "at least" : "above", least_);
    if (has_most)
      text += fmt::format("{}{} {}", text.empty() ? "" : " and ", with_most_ ? "at most" : "below", most_);
    if (text.empty())
      text = "finite";
    else if (must_say_finite && !(has_least && has_most))
      text += " and finite";
  }
  if (!std::isnan(other_)) text += fmt::format(", or {}", other_);
  return text;
}

namespace detail {

std::string spell_number(double number) { return fmt::format("{}", number); }

void refuse_number(std::string_view name, const Allowed& allowed, std::string value, bool is_real,
                   bool is_optional, std::vector<std::string>& faults) {
  faults.push_back(fmt::format("{} is {}: must be {}{}", name, value, allowed.text(is_real),
                               is_optional ? ", or unset" : ""));
}

void check_name(std::string_view name, const Allowed& allowed, std::string_view value, bool is_item,
                std::vector<std::string>& faults) {
  const auto names = allowed.names();
  if (names.empty() || std::ranges::find(names, value) != names.end()) return;
  faults.push_back(fmt::format("{} {} '{}': must be {}{}", name, is_item ? "has" : "is", value,
                               allowed.text(), did_you_mean(value, names)));
}

void refuse_empty(std::string_view name, bool is_optional, std::vector<std::string>& faults) {
  faults.push_back(fmt::format("{} is empty: must not be empty{}", name, is_optional ? ", or be unset" : ""));
}

}  // namespace detail
}  // namespace etude::inline v0
