#include "etude/optim/name_patterns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/parameter_rules.hpp"

namespace etude::inline v0::detail {

namespace {

std::vector<std::string> split_patterns(std::string_view patterns) {
  std::vector<std::string> result;
  while (true) {
    patterns.remove_prefix(std::min(patterns.find_first_not_of(' '), patterns.size()));
    if (patterns.empty()) return result;
    result.emplace_back(patterns.substr(0, patterns.find(' ')));
    patterns.remove_prefix(result.back().size());
  }
}

}  // namespace

bool any_pattern_names(std::string_view patterns, std::string_view parameter) {
  return std::ranges::any_of(split_patterns(patterns),
                             [&](const std::string& pattern) { return names_parameter(pattern, parameter); });
}

void check_name_patterns(std::string_view option, std::string_view patterns,
                         const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> names;
  for (const auto& group : groups)
    for (const auto& [name, tensor] : group.parameters) names.push_back(name);
  for (const std::string& pattern : split_patterns(patterns)) {
    if (std::ranges::none_of(names, [&](const std::string& name) { return names_parameter(pattern, name); }))
      throw ArgumentError(fmt::format("{} has the pattern '{}': must name a parameter or module, such as {}",
                                      option, pattern, fmt::join(similar_names(pattern, names), ", ")));
  }
}

}  // namespace etude::inline v0::detail
