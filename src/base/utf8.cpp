#include "etude/base/utf8.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace etude::inline v0 {
namespace detail {

namespace {

/// The length in bytes of the first character of `text`; 0 if it isn't valid UTF-8.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const auto second = byte(1);
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_surrogate = first == 0xED && second >= 0xA0;
  const bool is_too_large = first == 0xF4 && second >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

}  // namespace

}  // namespace detail

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string mended_utf8(std::string_view text) {
  std::string mended;
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    mended += length == 0 ? "\xEF\xBF\xBD" : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return mended;
}

std::string quoted_utf8(std::string_view text) {
  std::string quoted = "'";
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length == 0 || byte < 0x20 || byte == 0x7F)
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", byte);
    else
      quoted += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
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
