#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "etude/base/text_columns.hpp"

/// Formats text for pages and terminals. The input may come from untrusted files, so these functions accept
/// any text and any number.
namespace etude::inline v0::detail {

/// Plain text of at most `columns` columns, with an ellipsis at the end if it was cut.
std::string cut_text(std::string_view text, std::size_t columns);

/// As `cut_text`, but cuts in the middle: names often differ at their ends.
std::string cut_name(std::string_view name, std::size_t columns);

/// Plain text, escaped for an HTML element or a quoted attribute.
std::string html_text(std::string_view text);

/// A name, escaped as one segment of a relative URL.
std::string address_part(std::string_view name);

/// A number with at most `digits` significant digits; whole numbers below a million are written in full.
std::string number_text(double value, int digits = 6);

/// A duration: "< 1 ms", "35 ms", "1.2 s", "4 min 05 s", "2 h 13 min", "3 d 04 h".
std::string duration_text(double seconds);

/// A time such as "2024-02-29 12:30 UTC"; empty for a time outside the calendar.
std::string time_text(double seconds);

}  // namespace etude::inline v0::detail
