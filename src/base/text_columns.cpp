#include "etude/base/text_columns.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "etude/base/utf8.hpp"

namespace etude::inline v0::detail {

namespace {

struct CodeRange {
  std::uint32_t first, last;
};

template <std::size_t N>
bool is_in(std::uint32_t code, const CodeRange (&ranges)[N]) {
  return std::ranges::any_of(
      ranges, [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

void for_each_character(std::string_view text, FunctionRef<void(std::string_view, std::uint32_t)> use) {
  while (!text.empty()) {
    const auto [bytes, code] = take_character(text);
    use(bytes, code.value_or(0xFFFD));
  }
}

std::string plain_text(std::string_view text) {
  // Control characters, line separators, direction marks and overrides, the byte order mark, noncharacters,
  // and bytes that aren't UTF-8.
  constexpr CodeRange unsafe[] = {{0, 0x1F},        {0x7F, 0x9F},     {0x061C, 0x061C},
                                  {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069},
                                  {0xFDD0, 0xFDEF}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFF}};
  std::string plain;
  for_each_character(text, [&](std::string_view character, std::uint32_t code) {
    plain += is_in(code, unsafe) ? std::string_view("\xEF\xBF\xBD") : character;
  });
  return plain;
}

// wcwidth(3) depends on the locale.
std::size_t columns_of_code(std::uint32_t code) {
  constexpr CodeRange combining[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},
                                     {0x064B, 0x065F}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1160, 0x11FF},
                                     {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x20D0, 0x20FF},
                                     {0x302A, 0x302F}, {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  constexpr CodeRange wide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},  {0x23F0, 0x23F0},
                                {0x23F3, 0x23F3},   {0x26A1, 0x26A1},   {0x2705, 0x2705},  {0x2728, 0x2728},
                                {0x274C, 0x274C},   {0x2753, 0x2755},   {0x2757, 0x2757},  {0x2B50, 0x2B50},
                                {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
                                {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
                                {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  return is_in(code, combining) ? 0 : is_in(code, wide) ? 2 : 1;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for_each_character(text, [&](std::string_view, std::uint32_t code) { columns += columns_of_code(code); });
  return columns;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t used = 0, bytes = 0;
  bool is_full = false;
  for_each_character(text, [&](std::string_view character, std::uint32_t code) {
    used += columns_of_code(code);
    is_full |= used > columns;
    if (!is_full) bytes += character.size();
  });
  return text.substr(0, bytes);
}

}  // namespace etude::inline v0::detail
