#include "etude/report/page_text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
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
  for (const char c : plain_text(text))
    if (c == '<')
      html += "&lt;";
    else if (c == '&')
      html += "&amp;";
    else
      html += c;
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

}  // namespace etude::inline v0::detail
