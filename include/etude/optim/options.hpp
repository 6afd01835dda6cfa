#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {
namespace detail {

/// What `value` should have been; empty when it was read into `target`.
inline std::string read_option(const nlohmann::json& value, double& target) {
  if (!value.is_number()) return "a number";
  target = value.get<double>();
  return "";
}

inline std::string read_option(const nlohmann::json& value, std::int64_t& target) {
  if (!value.is_number() || value.get<double>() != std::floor(value.get<double>()) ||
      std::abs(value.get<double>()) > 1e15)
    return "a whole number";
  target = value.get<std::int64_t>();
  return "";
}

inline std::string read_option(const nlohmann::json& value, bool& target) {
  if (value == "True" || value == "False") {
    target = value == "True";
  } else if (value.is_boolean()) {
    target = value.get<bool>();
  } else {
    return "true or false";
  }
  return "";
}

inline std::string read_option(const nlohmann::json& value, std::string& target) {
  if (!value.is_string()) return "a text";
  target = value.get<std::string>();
  return "";
}

template <ReflectedEnum Enum>
std::string read_option(const nlohmann::json& value, Enum& target) {
  for (std::string_view name : enum_names<Enum>) {
    if (value != name) continue;
    target = from_string<Enum>(name);
    return "";
  }
  return fmt::format("one of {}", fmt::join(enum_names<Enum>, ", "));
}

template <typename T>
std::string read_option(const nlohmann::json& value, std::optional<T>& target) {
  if (value.is_null() || value == "None") {
    target.reset();
    return "";
  }
  return read_option(value, target.emplace());
}

inline void throw_faults(const std::vector<std::string>& faults) {
  if (!faults.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults, "\n")));
}

/// Throws ArgumentError with every option that isn't what its definition allows.
template <ReflectedStruct Options>
void check_options(const Options& options, std::string_view prefix = "") {
  auto faults = field_faults(options);
  for (auto& fault : faults) fault.insert(0, prefix);
  throw_faults(faults);
}

}  // namespace detail

/// Sets the members of `options` that `values`, a JSON object, names. Throws ArgumentError with all names
/// that are unknown and all values of a wrong kind; `where` says where they were given ("optim_args of sgd").
template <ReflectedStruct Options>
void read_options(const nlohmann::json& values, Options& options, std::string_view where) {
  if (values.is_null()) return;
  if (!values.is_object()) {
    throw ArgumentError(
        fmt::format("{} is {}: must be a JSON object or name=value,name=value", where, values.dump()));
  }
  const std::vector<std::string_view> known = field_names<Options>();
  std::vector<std::string> faults;
  for (const auto& [name, value] : values.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    faults.push_back(fmt::format("{}: '{}' is unknown: must be one of {}{}", where, name,
                                 fmt::join(known, ", "), did_you_mean(name, known)));
  }
  for_each_field(options, [&](std::string_view name, std::string_view, auto& member) {
    const auto given = values.find(std::string(name));
    if (given == values.end()) return;
    if (const std::string expected = detail::read_option(*given, member); !expected.empty()) {
      faults.push_back(fmt::format("{}: {} is {}: must be {}", where, name, given->dump(), expected));
    }
  });
  detail::throw_faults(faults);
}

}  // namespace etude
