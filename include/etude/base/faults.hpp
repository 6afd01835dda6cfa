#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

/// Collects all faults of some settings, one line for each: "field is value: must be ...".
class Faults {
 public:
  Faults() = default;
  explicit Faults(std::vector<std::string> lines) : lines_(std::move(lines)) {}

  template <class... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    lines_.push_back(fmt::format(format, std::forward<Parts>(parts)...));
  }

  /// Adds "field is value: must be allowed" unless `good`.
  template <class Value>
  void require(bool good, std::string_view field, const Value& value, std::string_view allowed) {
    if (!good) add("{} is {}: must be {}", field, value, allowed);
  }
  /// Adds "field is true: must be false why" if `given`.
  void refuse(bool given, std::string_view field, std::string_view why) {
    require(!given, field, true, fmt::format("false {}", why));
  }

  /// Throws ArgumentError with all lines, if there are any.
  void check() const;

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace etude::inline v0::detail
