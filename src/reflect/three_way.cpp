#include "etude/reflect/three_way.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

bool same_json(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  return nlohmann::json(to_json_value(a)) == nlohmann::json(to_json_value(b));
}

std::string short_json(const nlohmann::ordered_json& value) {
  return shortened(
      to_json_value(value).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace detail

nlohmann::ordered_json changed(const nlohmann::ordered_json& given, const nlohmann::ordered_json& now) {
  auto result = nlohmann::ordered_json::object();
  for (const auto& [name, value] : now.items()) {
    const auto before = given.find(name);
    if (before == given.end() || !detail::same_json(*before, value)) result[name] = value;
  }
  return result;
}

nlohmann::ordered_json three_way(const nlohmann::ordered_json& given_then,
                                 const nlohmann::ordered_json& changed_then,
                                 const nlohmann::ordered_json& given_now,
                                 std::vector<std::string>& differences, std::string_view prefix) {
  auto result = nlohmann::ordered_json::object();
  if (!given_now.is_object()) return result;
  for (const auto& [name, value] : given_now.items()) {
    const auto before = given_then.find(name);
    const auto made = changed_then.find(name);
    if (before != given_then.end() && !detail::same_json(*before, value)) {
      result[name] = value;
      differences.push_back(fmt::format("{}{}{}: {} -> {}", prefix, prefix.empty() ? "" : ".", name,
                                        detail::short_json(*before), detail::short_json(value)));
    } else {
      result[name] = made != changed_then.end() ? *made : value;
    }
  }
  return result;
}

}  // namespace etude::inline v0
