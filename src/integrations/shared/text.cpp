#include "etude/integrations/shared/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string/case_conv.hpp>
#include <locale>

#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace

std::string text_in(const nlohmann::json& json, const char* name) {
  return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>()
                                                                           : "";
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string beginning(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end)
    if (begins_character(text[end]) && ++seen > count) break;
  return text.substr(0, end);
}

std::string upper_case(std::string text) {
  boost::to_upper(text, std::locale::classic());
  return text;
}

std::vector<std::string> comma_separated(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (const auto part = without_blanks(text.substr(0, comma)); !part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string hexadecimal(std::string_view bytes) {
  const std::vector<unsigned char> numbers(bytes.begin(), bytes.end());
  return fmt::format("{:02x}", fmt::join(numbers, ""));
}

}  // namespace etude::inline v0::detail
