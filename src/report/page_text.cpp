#include "etude/report/page_text.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string cut_text(std::string_view text, std::size_t columns) {
  // A character has at most 4 bytes; the rest of a long text needn't be sanitised.
  auto plain = plain_text(text.substr(0, 4 * columns + 4));
  if (columns_of(plain) <= columns) return plain;
  return std::string(first_columns(plain, columns == 0 ? 0 : columns - 1)) + "\xE2\x80\xA6";
}

std::string cut_name(std::string_view name, std::size_t columns) {
  constexpr std::size_t longest = 1000;
  auto plain = cut_text(name, longest);
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

std::string html_text(std::string_view text) {
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

std::string address_part(std::string_view name) {
  std::string part;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '-' || c == '_' || c == '.';
    part += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return part;
}

std::string number_text(double value, int digits) {
  if (value == std::round(value) && std::abs(value) < 1e6) return fmt::format("{:.0f}", value + 0.0);
  return fmt::format("{:.{}g}", value, digits);
}

std::string duration_text(double seconds) {
  if (seconds < 0.0005) return seconds == 0 ? "0 ms" : "< 1 ms";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e12) return number_text(seconds / 86400, 3) + " d";
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

std::string time_text(double seconds) {
  constexpr double year_1 = -62135596800, year_10000 = 253402300800;
  if (!(seconds >= year_1 && seconds < year_10000)) return {};
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(std::floor(seconds))));
}

}  // namespace etude::inline v0::detail
