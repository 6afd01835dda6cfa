#include "etude/base/named_format.hpp"

#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The names of the replacement fields. fmt reports any other mistake in the format.
std::vector<std::string> replacement_fields(std::string_view format) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '{') continue;
    if (format.substr(i, 2) == "{{") {
      ++i;
      continue;
    }
    const auto begin = format.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const std::string name(begin, std::find_if_not(begin, format.end(), is_name_character));
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])))
      throw ArgumentError(
          fmt::format("'{}' has a field without a name: must be such as {{loss:.4f}}", format));
    names.push_back(name);
  }
  return names;
}

}  // namespace

}  // namespace detail

std::optional<std::string> format_fields(
    std::string_view format, detail::FunctionRef<std::optional<double>(std::string_view)> value_of) {
  fmt::dynamic_format_arg_store<fmt::format_context> fields;
  for (const auto& name : detail::replacement_fields(format)) {
    const auto value = value_of(name);
    if (!value) return std::nullopt;
    fields.push_back(fmt::arg(name.c_str(), *value));
  }
  try {
    return fmt::vformat(format, fields);
  } catch (const fmt::format_error& error) {
    throw ArgumentError(fmt::format("'{}' isn't a format of numbers: {}", format, error.what()));
  }
}

}  // namespace etude::inline v0
