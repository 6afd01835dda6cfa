#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/struct.hpp"

/// Expands to `instantiate(type)` for each type whose JSON and command-line conversions are compiled into the
/// library, so that programs with such members don't instantiate them.
#define ETUDE_DETAIL_FOR_COMMON_TYPES(instantiate)  \
  instantiate(bool);                                \
  instantiate(int);                                 \
  instantiate(std::int64_t);                        \
  instantiate(std::uint64_t);                       \
  instantiate(float);                               \
  instantiate(double);                              \
  instantiate(std::string);                         \
  instantiate(std::optional<bool>);                 \
  instantiate(std::optional<int>);                  \
  instantiate(std::optional<std::int64_t>);         \
  instantiate(std::optional<double>);               \
  instantiate(std::optional<std::string>);          \
  instantiate(std::vector<bool>);                   \
  instantiate(std::vector<int>);                    \
  instantiate(std::vector<std::int64_t>);           \
  instantiate(std::vector<double>);                 \
  instantiate(std::vector<std::string>);            \
  instantiate(std::map<std::string, std::int64_t>); \
  instantiate(std::map<std::string, double>);       \
  instantiate(std::map<std::string, std::string>);  \
  instantiate(nlohmann::json);                      \
  instantiate(nlohmann::ordered_json)

namespace etude::inline v0::detail {

class JsonReader;

/// The type-erased JSON conversions of one type.
struct JsonType {
  nlohmann::ordered_json (*write)(const void* value);
  void (*read)(JsonReader& reader, const nlohmann::ordered_json& json, void* value, const std::string& path);
};

/// The JsonType of `T`, defined in json.hpp.
template <class T>
const JsonType& json_type();

struct JsonField {
  std::string_view name;
  void* value;
  const JsonType* type;
};

/// The members of `object` in order of definition; valid while it lives.
template <ReflectedStruct T>
std::vector<JsonField> json_fields(const T& object) {
  std::vector<JsonField> fields;
  // One instantiation serves readers and writers; those with a const object never write to its members.
  for_each_field(const_cast<T&>(object),
                 [&]<class Member>(std::string_view name, std::string_view, Member& member) {
                   fields.push_back({name, &member, &json_type<Member>()});
                 });
  return fields;
}

nlohmann::ordered_json to_json_object(const std::vector<JsonField>& fields);

}  // namespace etude::inline v0::detail
