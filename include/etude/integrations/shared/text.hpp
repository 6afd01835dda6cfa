#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

/// JSON without spaces, for a server or a file; invalid UTF-8 is replaced.
template <class Json>
std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The text of an object's member; empty if there is no such text.
std::string text_in(const nlohmann::json& json, const char* name);

/// The number of characters in a UTF-8 text.
std::size_t characters(std::string_view text);

/// The first `count` characters of a UTF-8 text.
std::string beginning(const std::string& text, std::size_t count);

/// `text` with the ASCII letters a to z in upper case, whatever the locale.
std::string upper_case(std::string text);

/// The parts of "a, b", without blanks around them; empty ones are left out.
std::vector<std::string> comma_separated(std::string_view text);

/// Two hexadecimal digits for each byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace etude::inline v0::detail
