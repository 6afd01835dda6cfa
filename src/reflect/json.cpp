#include "etude/reflect/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

void spell_non_finite(nlohmann::ordered_json& json) {
  if (json.is_structured()) {
    for (auto& part : json) spell_non_finite(part);
  } else if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    json = non_finite_name(json.get<double>());
  }
}

std::string json_text(const nlohmann::ordered_json& json, KeyOrder order, std::string_view type) {
  try {
    return (order == KeyOrder::sorted ? nlohmann::json(json).dump(2) : json.dump(2)) + "\n";
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("can't write JSON of {}: {}", type, error.what()));
  }
}

nlohmann::ordered_json to_json_object(const std::vector<JsonField>& fields) {
  auto json = nlohmann::ordered_json::object();
  auto& members = json.get_ref<nlohmann::ordered_json::object_t&>();
  for (const auto& field : fields) members.emplace_back(field.name, field.type->write(field.value));
  return json;
}

#define ETUDE_DETAIL_JSON_TYPE(...) template const JsonType& json_type<__VA_ARGS__>()
ETUDE_DETAIL_FOR_COMMON_TYPES(ETUDE_DETAIL_JSON_TYPE);
#undef ETUDE_DETAIL_JSON_TYPE

}  // namespace detail

}  // namespace etude::inline v0

namespace nlohmann {
ETUDE_DETAIL_JSON_MEMBERS(, std::map);
ETUDE_DETAIL_JSON_MEMBERS(, ordered_map);
}  // namespace nlohmann
