#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace etude {

/// The manifest's own name in the folder that it describes.
inline constexpr std::string_view manifest_file = "etude_manifest.json";

namespace detail {

/// A name that was read from a file, for a message: control characters and what isn't UTF-8 escaped, and of a
/// long one the beginning.
inline std::string printable(std::string_view name) {
  constexpr std::size_t longest = 200;
  const bool cut = name.size() > longest;
  const auto text = nlohmann::json(std::string(name.substr(0, longest)))
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.substr(1, text.size() - 2) + (cut ? "..." : "");
}

/// Why a folder of a checkpoint can't have a file of this name, or "". Names are paths in the folder, with
/// '/' between their parts.
inline std::string_view fault_of_entry_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.find('\0') != name.npos) return "it has a NUL in it";
  if (name.front() == '/') return "it is absolute";
  if (name == manifest_file) return "it is the manifest's own";
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return "it has a part that is empty, '.' or '..'";
    begin = end + 1;
  }
  return "";
}

}  // namespace detail
}  // namespace etude
