#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "etude/base/function_ref.hpp"

/// Makes any text safe to print on a terminal, and measures its width in columns.
namespace etude::inline v0::detail {

/// Calls `use(character, code)` for each character; a byte that isn't UTF-8 has the code U+FFFD.
void for_each_character(std::string_view text, FunctionRef<void(std::string_view, std::uint32_t)> use);

/// Valid UTF-8 without characters that control a terminal or the direction of text; those become U+FFFD.
std::string plain_text(std::string_view text);

/// The columns of a character: 0 for a mark on the previous character, 2 for East Asian characters and emoji.
std::size_t columns_of_code(std::uint32_t code);

/// The number of columns that a plain text takes in a terminal.
std::size_t columns_of(std::string_view text);

/// The longest beginning of a plain text that fits into `columns`.
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace etude::inline v0::detail
