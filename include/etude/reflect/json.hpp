#pragma once

#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/enum.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

constexpr std::string_view non_finite_name(double value) {
  return value != value ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

void spell_non_finite(nlohmann::ordered_json& json);

}  // namespace detail

/// Converts `value` to JSON, with members in order of definition: structs, enums, optionals (null), lists,
/// maps with string keys, strings, numbers, bools and JSON itself. Non-finite numbers become "NaN",
/// "Infinity" or "-Infinity".
template <class T>
nlohmann::ordered_json to_json_value(const T& value) {
  nlohmann::ordered_json json;
  if constexpr (detail::JsonValue<T>) {
    json = nlohmann::ordered_json(value);
    detail::spell_non_finite(json);
  } else if constexpr (detail::is_optional<T>) {
    if (value) json = to_json_value(*value);
  } else if constexpr (std::floating_point<T>) {
    json = static_cast<double>(value);
    detail::spell_non_finite(json);
  } else if constexpr (ReflectedEnum<T>) {
    json = to_string(value);
  } else if constexpr (detail::SpelledByItself<T>) {
    if (const auto number = value.plain_number())
      json = to_json_value(*number);
    else
      json = value.text();
  } else if constexpr (ReflectedStruct<T>) {
    json = detail::to_json_object(detail::json_fields(value));
  } else if constexpr (detail::NamedValues<T>) {
    json = nlohmann::ordered_json::object();
    // Avoids operator[], whose linear search would make this quadratic.
    auto& members = json.get_ref<nlohmann::ordered_json::object_t&>();
    for (const auto& [name, item] : value) members.emplace_back(name, to_json_value(item));
  } else if constexpr (detail::List<T>) {
    json = nlohmann::ordered_json::array();
    for (const auto& item : value)
      json.push_back(to_json_value(static_cast<const typename T::value_type&>(item)));
  } else {
    static_assert(
        std::integral<T> || std::convertible_to<T, std::string_view>,
        "etude: no JSON form for this type; use bool, a number, std::string, an ETUDE_ENUM, std::optional, "
        "std::vector, std::map<std::string, ...>, an ETUDE_STRUCT or nlohmann::json");
    if constexpr (std::integral<T>) {
      json = value;
    } else {
      json = std::string(std::string_view(value));
    }
  }
  return json;
}

namespace detail {

template <class T>
const JsonType& json_type() {
  static constexpr JsonType type{
      .write = [](const void* value) { return to_json_value(*static_cast<const T*>(value)); },
      .read = [](JsonReader& reader, const nlohmann::ordered_json& json, void* value,
                 const std::string& path) { reader.read(json, *static_cast<T*>(value), path); }};
  return type;
}

#define ETUDE_DETAIL_JSON_TYPE(...) extern template const JsonType& json_type<__VA_ARGS__>()
ETUDE_DETAIL_FOR_COMMON_TYPES(ETUDE_DETAIL_JSON_TYPE);
#undef ETUDE_DETAIL_JSON_TYPE

}  // namespace detail

/// Converts `json` to T. Missing members keep their defaults; unknown keys are skipped and, if given, added
/// to `unknown_keys`. Throws ArgumentError with each field of the wrong type, its value and what is allowed;
/// integers must fit exactly. In a direct member of type nlohmann::json, strings like "NaN" become numbers.
template <class T, detail::JsonValue Json>
T from_json_value(const Json& json, std::vector<std::string>* unknown_keys = nullptr) {
  T value{};
  detail::JsonReader reader;
  reader.read(json, value, "");
  reader.throw_faults();
  if (unknown_keys) *unknown_keys = std::move(reader.unknown_keys);
  return value;
}

enum class KeyOrder { defined, sorted };

namespace detail {
std::string json_text(const nlohmann::ordered_json& json, KeyOrder order, std::string_view type);
}

/// `to_json_value(value)` as text, indented by two, with a trailing newline. Throws ArgumentError if a string
/// in it isn't UTF-8.
template <class T>
std::string to_json_text(const T& value, KeyOrder order = KeyOrder::defined) {
  return detail::json_text(to_json_value(value), order, short_type_name<T>());
}

/// `from_json_value` of parsed text.
template <class T>
T from_json_text(std::string_view text, std::vector<std::string>* unknown_keys = nullptr) {
  return from_json_value<T>(parse_json(text), unknown_keys);
}

}  // namespace etude::inline v0

// The few members of basic_json that every trainer uses. They need most of its code, so instantiating them in
// a user's file would take seconds.
#define ETUDE_DETAIL_JSON_MEMBERS(EXTERN, MAP)                                  \
  EXTERN template basic_json<MAP>::~basic_json();                               \
  EXTERN template basic_json<MAP>::basic_json(const basic_json<MAP>&);          \
  EXTERN template basic_json<MAP>::basic_json(basic_json<MAP>&&);               \
  EXTERN template basic_json<MAP>& basic_json<MAP>::operator=(basic_json<MAP>); \
  EXTERN template basic_json<MAP> basic_json<MAP>::object(basic_json<MAP>::initializer_list_t)
namespace nlohmann {
ETUDE_DETAIL_JSON_MEMBERS(extern, std::map);
ETUDE_DETAIL_JSON_MEMBERS(extern, ordered_map);
}  // namespace nlohmann
