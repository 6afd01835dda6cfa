#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "etude/base/function_ref.hpp"

namespace etude::inline v0 {

/// `format` with its named fields replaced, such as "epoch {epoch:.0f} loss {loss:.4f}", in the syntax of
/// fmt. Returns `std::nullopt` if `value_of` has no number for one of the fields. Throws ArgumentError if
/// `format` isn't well-formed, or has a field without a name.
std::optional<std::string> format_fields(
    std::string_view format, detail::FunctionRef<std::optional<double>(std::string_view)> value_of);

}  // namespace etude::inline v0
