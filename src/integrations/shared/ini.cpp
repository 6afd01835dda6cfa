#include "etude/integrations/shared/ini.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/base/read_file.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
IniSections parse_ini(std::string_view text, std::string_view source) {
  IniSections sections;
  auto* section = &sections[""];
  std::string* last = nullptr;
  std::size_t last_indent = 0, number = 0;
  while (!text.empty()) {
    const auto raw = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(raw.size() + 1, text.size()));
    ++number;
    const auto line = without_blanks(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    const auto indent = raw.find(line.front());
    const auto equals = line.find_first_of("=:");
    if (last != nullptr && indent > last_indent) {
      last->append("\n").append(line);
    } else if (line.front() == '[' && line.back() == ']') {
      section = &sections[std::string(line.substr(1, line.size() - 2))];
      last = nullptr;
    } else if (equals != line.npos && equals > 0) {
      last = &(*section)[lower_case(without_blanks(line.substr(0, equals)))];
      *last = without_blanks(line.substr(equals + 1));
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
