#pragma once

#include <fmt/format.h>

#include <etude/error.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace etude {

/// Reads "num_cycles=0.5,decay_type=cosine" into a JSON object. A value that is JSON (a number, true,
/// "quoted") is read as such, any other is a string. Throws ArgumentError for a part that isn't name=value or
/// a name that stands twice.
inline nlohmann::json parse_key_values(std::string_view text) {
  auto values = nlohmann::json::object();
  while (!text.empty()) {
    const auto part = text.substr(0, text.find(','));
    text.remove_prefix(part.size() == text.size() ? part.size() : part.size() + 1);
    const auto first = part.find_first_not_of(' '), equals = part.find('=');
    if (equals == part.npos || equals <= first)
      throw ArgumentError(fmt::format("'{}' is not name=value", part));

    const std::string name(part.substr(first, part.find_last_not_of(' ', equals - 1) + 1 - first));
    const auto value = part.substr(equals + 1);
    auto parsed = nlohmann::json::parse(value, nullptr, false);
    if (values.contains(name)) throw ArgumentError(fmt::format("'{}' is given twice", name));
    values[name] = parsed.is_discarded() ? nlohmann::json(std::string(value)) : std::move(parsed);
  }
  return values;
}

}  // namespace etude
