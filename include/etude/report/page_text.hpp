#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "etude/base/number_text.hpp"
#include "etude/base/text_columns.hpp"

/// Formats text for pages and terminals. The input may come from untrusted files, so these functions accept
/// any text.
namespace etude::inline v0::detail {

/// Plain text of at most `columns` columns, with an ellipsis at the end if it was cut.
std::string cut_text(std::string_view text, std::size_t columns);

/// Like `cut_text`, but cuts in the middle: names often differ at their ends.
std::string cut_name(std::string_view name, std::size_t columns);

/// Plain text, escaped for an HTML element.
std::string html_text(std::string_view text);

/// A name, escaped as one segment of a relative URL.
std::string address_part(std::string_view name);

}  // namespace etude::inline v0::detail
