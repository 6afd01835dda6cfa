#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "etude/base/text_columns.hpp"

/// Texts for pages and terminals. They come from files that anybody may have written, so these take any text
/// and any number.
namespace etude::inline v0::detail {

/// A plain text of at most so many columns, with an ellipsis if it was longer.
std::string cut_text(std::string_view text, std::size_t columns);

/// The same, but with the ellipsis in the middle: names often differ at their ends.
std::string cut_name(std::string_view name, std::size_t columns);

/// A plain text for HTML, inside an element or a quoted attribute.
std::string html_text(std::string_view text);

/// Any name as one part of a relative address.
std::string address_part(std::string_view name);

/// Up to so many digits, and whole numbers below a million as they are.
std::string number_text(double value, int digits = 6);

/// "< 1 ms", "35 ms", "1.2 s", "4 min 05 s", "2 h 13 min", "3 d 04 h".
std::string duration_text(double seconds);

/// "2024-02-29 12:30 UTC"; empty for a time that no calendar has.
std::string time_text(double seconds);

}  // namespace etude::inline v0::detail
