#include "etude/reflect/json_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0::detail {

std::optional<double> non_finite(std::string_view word) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return infinity;
  if (word == "-Infinity") return -infinity;
  return std::nullopt;
}

std::string shortened(std::string text) {
  static constexpr std::size_t longest = 60;
  if (text.size() <= longest) return text;
  std::size_t end = longest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string one_of(std::span<const std::string_view> names) {
  return fmt::format("one of {}", fmt::join(names, ", "));
}

void JsonReader::throw_faults(std::string_view separator) const {
  if (!faults.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults, separator)));
}

void JsonReader::read_fields(const nlohmann::ordered_json& json, const std::vector<JsonField>& fields,
                             const std::string& path) {
  if (!json.is_object()) return refuse(json, path, "an object", {});
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& field : fields)
    if (const auto it = json.find(field.name); it != json.end())
      field.type->read(*this, *it, field.value, prefix + std::string(field.name));
  for (const auto& [name, item] : json.items())
    if (std::ranges::find(fields, name, &JsonField::name) == fields.end())
      unknown_keys.push_back(prefix + name);
}

void JsonReader::refuse(const nlohmann::ordered_json& json, const std::string& path,
                        const std::string& allowed, std::span<const std::string_view> choices) {
  static constexpr std::size_t most = 20;
  if (++refused_ > most) {
    if (refused_ == most + 1) faults.push_back("and more");
    return;
  }
  const auto text = shortened(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  const auto offer = json.is_string() ? did_you_mean(json.get_ref<const std::string&>(), choices) : "";
  faults.push_back((path.empty() ? "the value" : path) + " is " + text + ": must be " + allowed + offer);
}

}  // namespace etude::inline v0::detail
