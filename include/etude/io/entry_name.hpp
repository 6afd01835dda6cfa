#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace etude::inline v0 {

/// The manifest's file name in the folder it describes.
inline constexpr std::string_view manifest_file = "etude_manifest.json";

namespace detail {

/// Makes a name from a file printable: escapes control characters and invalid UTF-8, and truncates long
/// names.
std::string printable(std::string_view name);

inline std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

/// Returns why a checkpoint folder can't contain a file of this name, or "" if it can. Names are relative
/// paths with '/' as the separator.
std::string_view fault_of_entry_name(std::string_view name);

}  // namespace detail
}  // namespace etude::inline v0
