#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace etude {
namespace detail {

/// Tells `listener` of each word of a JSON text. The one place that parses: nlohmann's parser would be
/// compiled once more for each form of text, listener and JSON.
void parse_json_events(std::string_view text, nlohmann::ordered_json::json_sax_t& listener);

}  // namespace detail

/// `text` as JSON; bare NaN, Infinity and -Infinity, as Python writes them, become the strings "NaN" and so
/// on. Throws ArgumentError that says where it isn't JSON, or that it is nested deeper than 100 levels.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/reflect/impl/json_parser.ipp"
#endif
