#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Makes any text safe to print on a terminal, and measures its width in columns.
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

/// Valid UTF-8 without characters that control a terminal or the direction of text; those become U+FFFD.
std::string plain_text(std::string_view text);

/// The columns of a character: 0 for a mark on the character before, 2 for East Asian characters and emoji.
std::size_t columns_of_code(std::uint32_t code);

/// The columns that a plain text takes in a terminal.
std::size_t columns_of(std::string_view text);

/// As many characters of a plain text as fit into so many columns.
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace etude::inline v0::detail
