#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/reflect/enum.hpp"
#include "etude/reflect/json_fields.hpp"
#include "etude/reflect/read_text.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0::detail {

template <class T>
concept JsonValue = nlohmann::detail::is_basic_json<T>::value;

template <class T>
concept NamedValues = requires { typename T::mapped_type; } &&
                      std::same_as<typename T::key_type, std::string> && (!JsonValue<T>);

template <class T>
concept List = requires(T list, typename T::value_type value) { list.push_back(std::move(value)); } &&
               (!JsonValue<T> && !NamedValues<T> && !std::convertible_to<T, std::string_view>);

/// The number for a word such as "NaN" that stands for a number JSON can't represent.
std::optional<double> non_finite(std::string_view word);

/// "one of no, steps, epoch".
std::string one_of(std::span<const std::string_view> names);

/// A description of the values of type T; `absent` is the spelling of an empty optional.
template <class T>
std::string allowed_values(std::string_view absent = "null") {
  if constexpr (is_optional<T>) {
    return allowed_values<typename T::value_type>(absent) + ", or " + std::string(absent);
  } else if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::integral<T>) {
    if (sizeof(T) == 8) return std::is_signed_v<T> ? "a whole number" : "a whole number >= 0";
    return "a whole number from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max());
  } else if constexpr (std::floating_point<T>) {
    return "a number";
  } else if constexpr (ReflectedEnum<T>) {
    return one_of(enum_names<T>);
  } else if constexpr (std::same_as<T, std::string>) {
    return "a string";
  } else if constexpr (SpelledByItself<T>) {
    return std::string(T::allowed);
  } else if constexpr (List<T>) {
    return "a list, each " + allowed_values<typename T::value_type>(absent);
  } else if constexpr (JsonValue<T>) {
    return "JSON";
  } else {
    return "an object";
  }
}

/// The start of a string too long for a message, cut between characters.
std::string shortened(std::string text);

/// Reads JSON into C++ values and continues after errors to find all of them; reports at most 20. A value
/// with an error stays unchanged.
class JsonReader {
 public:
  std::vector<std::string> faults, unknown_keys;

  /// Throws an ArgumentError that lists all errors, one per line, if there are any.
  void throw_faults(std::string_view separator = "\n") const;

  template <class T>
  void read(const nlohmann::ordered_json& json, T& value, const std::string& path) {
    if constexpr (JsonValue<T>) {
      value = json;
      if (json.is_string()) {
        if (const auto number = non_finite(json.get_ref<const std::string&>())) value = *number;
      }
    } else if constexpr (is_optional<T>) {
      using Held = typename T::value_type;
      if (json.is_null()) return value.reset();
      if constexpr (!std::same_as<Held, std::string> && !JsonValue<Held>)
        if (json.is_string() && means_unset(json.get_ref<const std::string&>())) return value.reset();
      Held held{};
      if (read_whole(json, held, path)) value = std::move(held);
    } else if constexpr (ReflectedStruct<T>) {
      read_fields(json, json_fields(value), path);
    } else if constexpr (NamedValues<T>) {
      if (!json.is_object()) return refuse<T>(json, path);
      T values{};
      for (const auto& [name, item] : json.items())
        read(item, values[name], path.empty() ? name : path + "." + name);
      value = std::move(values);
    } else if constexpr (List<T>) {
      if (!json.is_array()) return refuse<T>(json, path);
      T list{};
      for (std::size_t i = 0; i < json.size(); ++i) {
        typename T::value_type item{};
        read(json[i], item, path + "[" + std::to_string(i) + "]");
        list.push_back(std::move(item));
      }
      value = std::move(list);
    } else {
      static_assert(
          OneText<T>,
          "etude: no way to read this type from JSON; use bool, a number, std::string, an ETUDE_ENUM, "
          "std::optional, std::vector, std::map<std::string, ...>, an ETUDE_STRUCT or nlohmann::json");
      if constexpr (OneText<T>)
        if (!read_scalar(json, value)) refuse<T>(json, path);
    }
  }

  /// Reads the members of a struct.
  void read_fields(const nlohmann::ordered_json& json, const std::vector<JsonField>& fields,
                   const std::string& path);

 private:
  template <class T>
  bool read_whole(const nlohmann::ordered_json& json, T& value, const std::string& path) {
    const auto before = refused_;
    read(json, value, path);
    return refused_ == before;
  }

  template <OneText T>
  static bool read_scalar(const nlohmann::ordered_json& json, T& value) {
    if (json.is_string()) return read_text(json.get_ref<const std::string&>(), value);
    if constexpr (std::same_as<T, bool>) {
      if (!json.is_boolean() && json != 0 && json != 1) return false;
      value = json.is_boolean() ? json.get<bool>() : json == 1;
    } else if constexpr (std::integral<T>) {
      std::optional<T> number;
      if (json.is_number_unsigned()) {
        number = exact<T>(json.get<std::uint64_t>());
      } else if (json.is_number_integer()) {
        number = exact<T>(json.get<std::int64_t>());
      } else if (json.is_number_float()) {
        number = exact<T>(json.get<double>());
      }
      if (!number) return false;
      value = *number;
    } else if constexpr (std::floating_point<T>) {
      if (!json.is_number()) return false;
      const auto number = json.get<double>();
      if (std::isfinite(number) && std::abs(number) > std::numeric_limits<T>::max()) return false;
      value = static_cast<T>(number);
    } else if constexpr (SpelledByItself<T>) {
      if (!json.is_number()) return false;
      auto read = T::from_number(json.get<double>());
      if (!read) return false;
      value = *std::move(read);
    } else {
      return false;
    }
    return true;
  }

  template <class T>
  void refuse(const nlohmann::ordered_json& json, const std::string& path) {
    if constexpr (ReflectedEnum<T>)
      refuse(json, path, allowed_values<T>(), enum_names<T>);
    else
      refuse(json, path, allowed_values<T>(), {});
  }

  void refuse(const nlohmann::ordered_json& json, const std::string& path, const std::string& allowed,
              std::span<const std::string_view> choices);

  std::size_t refused_ = 0;
};

}  // namespace etude::inline v0::detail
