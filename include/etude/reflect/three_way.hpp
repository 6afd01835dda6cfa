#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

/// Merges the named values of a resumed run from three sources: the values given to the saved run, their
/// values when it was saved, and the values given now.
namespace etude::inline v0 {
namespace detail {

/// Compares objects regardless of member order; a non-finite number equals its string form, and NaN equals
/// NaN.
bool same_json(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

/// Shortened for a message.
std::string short_json(const nlohmann::ordered_json& value);

}  // namespace detail

/// The members of `now` that are missing in `given` or have a different value there.
nlohmann::ordered_json changed(const nlohmann::ordered_json& given, const nlohmann::ordered_json& now);

/// The members of `given_now`, each with the value that a resumed run starts with. A member whose value is
/// the same in `given_now` as in `given_then` keeps the last value that it had in the saved run: its value in
/// `changed_then`, or else the given value. Any other member takes the value given now, and `differences`
/// gets a line such as `learning_rate: 0.001 -> 0.002`, with `prefix` and a dot before the name unless
/// `prefix` is empty. A member missing in `given_then`, from another version, counts as unchanged; one
/// missing in `given_now` is dropped. Members are compared and replaced as a whole. Anything but an object
/// counts as an empty one.
nlohmann::ordered_json three_way(const nlohmann::ordered_json& given_then,
                                 const nlohmann::ordered_json& changed_then,
                                 const nlohmann::ordered_json& given_now,
                                 std::vector<std::string>& differences, std::string_view prefix = "");

}  // namespace etude::inline v0
