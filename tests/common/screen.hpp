#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace toy {

/// The lines that a terminal of this width shows after printing `text`. A full line wraps when the next
/// character comes, as in xterm. The cursor is on the last line. Colours are left out.
inline std::vector<std::string> screen(std::string_view text, std::size_t columns) {
  std::vector<std::vector<std::string>> lines(1);  // of characters
  std::size_t column = 0;
  const auto put = [&](std::string character) {
    if (column == columns) {
      lines.emplace_back();
      column = 0;
    }
    auto& line = lines.back();
    if (line.size() <= column) line.resize(column + 1, " ");
    line[column++] = std::move(character);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (text[i] == '\r') {
      column = 0;
    } else if (text.substr(i).starts_with("\x1b[")) {
      const auto end = text.find_first_of("KGm", i);
      if (text[end] == 'K')
        lines.back().resize(std::min(column, lines.back().size()));
      else if (text[end] == 'G')
        column = std::min<std::size_t>(std::stoul(std::string(text.substr(i + 2))), columns) - 1;
      i = end;
    } else {
      std::size_t length = 1;
      while (i + length < text.size() && (text[i + length] & 0xC0) == 0x80) ++length;
      put(std::string(text.substr(i, length)));
      i += length - 1;
    }
  }
  std::vector<std::string> seen;
  for (const auto& line : lines) {
    std::string whole;
    for (const auto& character : line) whole += character;
    seen.push_back(whole.erase(whole.find_last_not_of(' ') + 1));
  }
  return seen;
}

}  // namespace toy
