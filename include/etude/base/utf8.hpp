#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0 {
namespace detail {

/// The bytes of a character and its code; a byte that isn't UTF-8 has no code.
struct Utf8Character {
  std::string_view bytes;
  std::optional<std::uint32_t> code;
};

/// Removes and returns the first character of `text`, which must not be empty.
Utf8Character take_character(std::string_view& text);

}  // namespace detail

/// Whether `text` is valid UTF-8 (RFC 3629), as JSON requires.
bool is_utf8(std::string_view text);

/// `text` with each invalid UTF-8 byte replaced by U+FFFD.
std::string mended_utf8(std::string_view text);

/// `text` in quotes for a message, with control characters and invalid UTF-8 bytes as \xHH.
std::string quoted_utf8(std::string_view text);

/// Repairs every string and key of `json` that isn't UTF-8; returns the first of them, quoted.
std::optional<std::string> mend_utf8(nlohmann::json& json);

}  // namespace etude::inline v0
