#include "etude/integrations/shared/ini.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/base/read_file.hpp"

namespace etude::inline v0::detail {
namespace ini {

namespace {

constexpr std::string_view blank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(blank);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blank) + 1 - first);
}

}  // namespace

}  // namespace ini

IniSections parse_ini(std::string_view text, std::string_view source) {
  IniSections sections;
  auto* section = &sections[""];
  std::string* last = nullptr;
  std::size_t last_indent = 0, number = 0;
  while (!text.empty()) {
    const auto raw = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(raw.size() + 1, text.size()));
    ++number;
    const auto line = ini::trimmed(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    const auto indent = raw.find_first_not_of(ini::blank);
    const auto equals = line.find_first_of("=:");
    if (last != nullptr && indent > last_indent) {
      last->append("\n").append(line);
    } else if (line.front() == '[' && line.back() == ']') {
      section = &sections[std::string(line.substr(1, line.size() - 2))];
      last = nullptr;
    } else if (equals != line.npos && equals > 0) {
      last = &(*section)[lower_case(ini::trimmed(line.substr(0, equals)))];
      *last = ini::trimmed(line.substr(equals + 1));
      last_indent = indent;
    } else {
      throw ArgumentError(
          fmt::format("{} can't be read: line {} must be [section] or name = value", source, number));
    }
  }
  return sections;
}

IniSections read_ini(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  const auto text = read_file(path);
  if (!text) throw ArgumentError(fmt::format("{} can't be read", path.string()));
  return parse_ini(*text, path.string());
}

}  // namespace etude::inline v0::detail
