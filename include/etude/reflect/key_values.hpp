#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0 {
namespace detail {

/// `word` as an integer if it is written as one, or else as a number, a bool or a string.
nlohmann::json guess_value(std::string_view word);

}  // namespace detail

/// Parses "num_cycles=0.5, decay_type=cosine" into a JSON object; each value becomes an integer, a number,
/// true, false, or else a string without surrounding blanks. Throws ArgumentError for a part that isn't
/// name=value and for duplicate names.
nlohmann::json parse_key_values(std::string_view text);

/// Parses "encoder: lr=1e-5, frozen=true; *.bias: weight_decay=0" into names, in their order, each with its
/// values as `parse_key_values` reads them. Throws ArgumentError for a part that isn't a name, a colon and
/// name=value.
std::vector<std::pair<std::string, nlohmann::json>> parse_named_key_values(std::string_view text);

}  // namespace etude::inline v0
