#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace etude::inline v0 {
namespace detail {

/// Reports each token of a JSON text to `listener`. All parsing happens here: nlohmann's parser would be
/// instantiated again for each combination of text, listener and JSON type.
void parse_json_events(std::string_view text, nlohmann::ordered_json::json_sax_t& listener);

}  // namespace detail

/// Parses JSON text; Python's bare NaN, Infinity and -Infinity become strings, and its lone surrogates become
/// U+FFFD. Throws ArgumentError with the position of a syntax error, or for nesting deeper than 100 levels.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace etude::inline v0
