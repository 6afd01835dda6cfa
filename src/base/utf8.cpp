#include "etude/base/utf8.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace etude::inline v0 {

// utfcpp has no function for this: its replace_invalid() writes one mark for several bytes.
detail::Utf8Character detail::take_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC0 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF8 ? 4
                                            : 0;
  bool is_valid = length > 0 && length <= text.size();
  std::uint32_t code = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; is_valid && i < length; ++i) {
    is_valid = (byte(i) & 0xC0) == 0x80;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};  // longer forms aren't allowed
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  is_valid = is_valid && code >= least.at(length) && code <= 0x10FFFF && !is_surrogate;
  const auto bytes = text.substr(0, is_valid ? length : 1);
  text.remove_prefix(bytes.size());
  return {bytes, is_valid ? std::optional(code) : std::nullopt};
}

bool is_utf8(std::string_view text) {
  while (!text.empty())
    if (!detail::take_character(text).code) return false;
  return true;
}

std::string mended_utf8(std::string_view text) {
  std::string mended;
  while (!text.empty()) {
    const auto [bytes, code] = detail::take_character(text);
    mended += code ? bytes : "\xEF\xBF\xBD";
  }
  return mended;
}

std::string quoted_utf8(std::string_view text) {
  std::string quoted = "'";
  while (!text.empty()) {
    const auto [bytes, code] = detail::take_character(text);
    if (!code || *code < 0x20 || *code == 0x7F)
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", static_cast<unsigned char>(bytes[0]));
    else
      quoted += bytes;
  }
  return quoted + "'";
}

std::optional<std::string> mend_utf8(nlohmann::json& json) {
  std::optional<std::string> first;
  const auto note = [&](std::optional<std::string> bad) {
    if (!first) first = std::move(bad);
  };
  if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    if (is_utf8(text)) return first;
    note(quoted_utf8(text));
    text = mended_utf8(text);
  } else if (json.is_array()) {
    for (auto& part : json) note(mend_utf8(part));
  } else if (json.is_object()) {
    auto mended = nlohmann::json::object();
    for (auto& [name, part] : json.items()) {
      if (!is_utf8(name)) note(quoted_utf8(name));
      note(mend_utf8(part));
      mended[mended_utf8(name)] = std::move(part);
    }
    json = std::move(mended);
  }
  return first;
}

}  // namespace etude::inline v0
