#include "etude/reflect/key_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

nlohmann::json guess_value(std::string_view word) {
  if (word.find_first_of(".eE") == word.npos)
    if (const auto whole = read_number<std::int64_t>(word); whole && (*whole != 0 || !word.starts_with('-')))
      return *whole;  // an integer can't be -0
  if (const auto number = read_number<double>(word)) return *number;
  if (word == "true" || word == "false") return word == "true";
  return std::string(word);
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

nlohmann::json parse_key_values(std::string_view text) {
  auto values = nlohmann::json::object();
  while (!text.empty()) {
    const auto part = text.substr(0, text.find(','));
    text.remove_prefix(part.size() == text.size() ? part.size() : part.size() + 1);
    const auto first = part.find_first_not_of(' '), equals = part.find('=');
    if (equals == part.npos || equals <= first)
      throw ArgumentError(fmt::format("'{}' is not name=value", part));

    const std::string name(part.substr(first, part.find_last_not_of(' ', equals - 1) + 1 - first));
    if (values.contains(name)) throw ArgumentError(fmt::format("'{}' is given twice", name));
    values[name] = detail::guess_value(detail::without_blanks(part.substr(equals + 1)));
  }
  return values;
}

std::vector<std::pair<std::string, nlohmann::json>> parse_named_key_values(std::string_view text) {
  std::vector<std::pair<std::string, nlohmann::json>> result;
  const auto blank = [](std::string_view part) { return part.find_first_not_of(' ') == part.npos; };
  for (std::string_view rest = text; !rest.empty();) {
    const auto part = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (blank(part)) continue;
    const auto colon = part.rfind(':');
    if (colon == part.npos || blank(part.substr(0, colon)) || blank(part.substr(colon + 1)))
      throw ArgumentError(fmt::format("'{}' is not name: name=value", part));
    const auto first = part.find_first_not_of(' ');
    result.emplace_back(part.substr(first, part.find_last_not_of(' ', colon - 1) + 1 - first),
                        parse_key_values(part.substr(colon + 1)));
  }
  return result;
}

}  // namespace etude::inline v0
