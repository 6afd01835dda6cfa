#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "etude/callbacks/text_table.hpp"
#include "etude/reflect/allowed.hpp"
#include "etude/study/trial_text.hpp"

namespace tool {

std::string plain(std::string_view text) { return etude::detail::plain_text(text); }

std::string plain_lines(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines += plain(text.substr(0, end));
    if (end < text.size()) lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void print(std::string_view lines) {
  const auto text = plain_lines(lines);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const nlohmann::ordered_json& json) {
  const auto text = json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void complain(std::string_view message) {
  std::fflush(stdout);
  auto lines = plain_lines(message);
  for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n', end + 1))
    lines.insert(end + 1, "etude: ");
  fmt::print(stderr, "etude: {}\n", lines);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  constexpr std::string_view units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
  auto size = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < std::size(units); ++unit) size /= 1000;
  return fmt::format("{:.{}f} {}", size, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, units[unit]);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", etude::detail::in_thousands(static_cast<std::int64_t>(count)), noun,
                     count == 1 ? "" : "s");
}

std::string value_text(const nlohmann::ordered_json& value, std::size_t longest) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_number_float()) {
    text = etude::detail::spell_number(value.get<double>());
  } else if (value.is_null()) {
    text = "none";
  } else {
    text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return etude::detail::cut_text(text, longest);
}

std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment) {
  std::vector<std::size_t> widths(alignment.size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], etude::detail::columns_of(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - etude::detail::columns_of(row[i]), ' ');
      line += "  " + (alignment[i] == 'r' ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace tool
