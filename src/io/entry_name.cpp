#include "etude/io/entry_name.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string printable(std::string_view name) {
  constexpr std::size_t longest = 200;
  const bool cut = name.size() > longest;
  const auto text = nlohmann::json(std::string(name.substr(0, longest)))
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.substr(1, text.size() - 2) + (cut ? "..." : "");
}

std::string_view fault_of_entry_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.find('\0') != name.npos) return "it contains a NUL";
  if (name.front() == '/') return "it is absolute";
  if (name == manifest_file) return "it is the manifest's name";
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return "one of its parts is empty, '.' or '..'";
    begin = end + 1;
  }
  return "";
}

}  // namespace etude::inline v0::detail
