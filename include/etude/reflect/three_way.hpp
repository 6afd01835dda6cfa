#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"

/// What a resumed run has of its named values. Three are known of each: what was given when the saved run was
/// made, what had become of it when it was saved, and what is given now.
namespace etude {
namespace detail {

/// Objects are equal whatever the order of their members, and a number that isn't finite equals its word:
/// NaN, too, equals NaN.
bool same_json(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

/// For a message.
std::string short_json(const nlohmann::ordered_json& value);

}  // namespace detail

/// The members of `now` that `given` lacks or has with another value.
nlohmann::ordered_json changed(const nlohmann::ordered_json& given, const nlohmann::ordered_json& now);

/// The members of `given_now`, each with the value that a resumed run begins with: what the saved run had
/// made of it (its value in `changed_then`, else the one given) if it is given now as it was then; otherwise
/// the one that is given now, and `differences` gets a line for it, such as `learning_rate: 0.001 -> 0.002`,
/// with `prefix` and a dot before the name unless `prefix` is empty. A member that `given_then` lacks, of
/// another version, counts as given alike; one that `given_now` lacks is dropped. Members are compared and
/// taken whole. What is no object is taken for an empty one.
nlohmann::ordered_json three_way(const nlohmann::ordered_json& given_then,
                                 const nlohmann::ordered_json& changed_then,
                                 const nlohmann::ordered_json& given_now,
                                 std::vector<std::string>& differences, std::string_view prefix = "");

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/reflect/impl/three_way.ipp"
#endif
