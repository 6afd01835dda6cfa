#include "etude/callbacks/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace etude::inline v0::detail {

std::string in_thousands(std::int64_t number) {
  auto text = std::to_string(number);
  for (auto at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text, rule;
  for (const auto width : widths) rule += std::string(width + 2, '-');
  rule += '\n';
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      text += (i == 0 ? "" : "  ") + (i < left ? fmt::format("{:<{}}", rows[r][i], widths[i])
                                               : fmt::format("{:>{}}", rows[r][i], widths[i]));
    text += '\n';
    if (r == 0) text += rule;
  }
  return text + rule;
}

}  // namespace etude::inline v0::detail
