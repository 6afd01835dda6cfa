#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "etude/base/linkage.hpp"
#include "etude/base/utf8.hpp"
#include "etude/report/page_text.hpp"

namespace etude::inline v0::detail {

/// Calls `use(character, code)` for each character of valid UTF-8.
template <class Use>
void for_each_character(std::string_view text, Use use) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    std::uint32_t code = length == 1 ? first : first & (0xFFU >> (length + 1));
    for (std::size_t j = 1; j < length && i + j < text.size(); ++j)
      code = (code << 6) | (static_cast<unsigned char>(text[i + j]) & 0x3FU);
    use(text.substr(i, length), code);
    i += length;
  }
}

struct CodeRange {
  std::uint32_t first, last;
};

template <std::size_t N>
bool is_in(std::uint32_t code, const CodeRange (&ranges)[N]) {
  return std::ranges::any_of(
      ranges, [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

ETUDE_INLINE std::string plain_text(std::string_view text) {
  // Controls, line separators, marks and overrides of direction, the byte order mark, no characters at all.
  constexpr CodeRange unsafe[] = {{0, 0x1F},        {0x7F, 0x9F},     {0x061C, 0x061C},
                                  {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069},
                                  {0xFDD0, 0xFDEF}, {0xFEFF, 0xFEFF}, {0xFFFE, 0xFFFF}};
  std::string plain;
  const auto mended = mended_utf8(text);
  for_each_character(mended, [&](std::string_view character, std::uint32_t code) {
    plain += is_in(code, unsafe) ? std::string_view("\xEF\xBF\xBD") : character;
  });
  return plain;
}

inline std::size_t columns_of_code(std::uint32_t code) {
  constexpr CodeRange wide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
                                {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
                                {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  return is_in(code, wide) ? 2 : 1;
}

ETUDE_INLINE std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for_each_character(text, [&](std::string_view, std::uint32_t code) { columns += columns_of_code(code); });
  return columns;
}

ETUDE_INLINE std::string cut_text(std::string_view text, std::size_t columns) {
  // A character has at most 4 bytes, and nobody waits for the mending of a long text.
  const auto plain = plain_text(text.substr(0, 4 * columns + 4));
  if (columns_of(plain) <= columns) return plain;
  std::string cut;
  std::size_t used = 1;
  bool is_full = false;
  for_each_character(plain, [&](std::string_view character, std::uint32_t code) {
    used += columns_of_code(code);
    is_full |= used > columns;
    if (!is_full) cut += character;
  });
  return cut + "\xE2\x80\xA6";
}

ETUDE_INLINE std::string cut_name(std::string_view name, std::size_t columns) {
  constexpr std::size_t longest = 1000;
  const auto plain = cut_text(name, longest);
  const auto all = columns_of(plain);
  if (all <= columns) return plain;
  const std::size_t front = columns / 2, back = columns - front - 1;
  std::string cut;
  std::size_t used = 0, left = all;
  bool is_front = true;
  for_each_character(plain, [&](std::string_view character, std::uint32_t code) {
    left -= columns_of_code(code);
    used += columns_of_code(code);
    if (is_front && used > front) {
      is_front = false;
      cut += "\xE2\x80\xA6";
    }
    if (is_front || left + columns_of_code(code) <= back) cut += character;
  });
  return cut;
}

ETUDE_INLINE std::string html_text(std::string_view text) {
  std::string html;
  for (const char c : plain_text(text)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

ETUDE_INLINE std::string number_text(double value, int digits) {
  if (value == std::round(value) && std::abs(value) < 1e6) return fmt::format("{:.0f}", value + 0.0);
  return fmt::format("{:.{}g}", value, digits);
}

ETUDE_INLINE std::string duration_text(double seconds) {
  if (seconds < 0.0005) return seconds == 0 ? "0 ms" : "< 1 ms";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e12) return number_text(seconds / 86400, 3) + " d";
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

ETUDE_INLINE std::string time_text(double seconds) {
  constexpr double year_1 = -62135596800, year_10000 = 253402300800;
  if (!(seconds >= year_1 && seconds < year_10000)) return {};
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(std::floor(seconds))));
}

}  // namespace etude::inline v0::detail
