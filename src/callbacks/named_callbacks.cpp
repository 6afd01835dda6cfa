#include "etude/callbacks/named_callbacks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "etude/reflect/key_values.hpp"

namespace etude::inline v0::detail {

std::vector<NamedCallback> parse_callbacks(const std::vector<std::string>& words) {
  std::vector<std::string> texts;
  for (const auto& word : words)
    if (!texts.empty() && word.find(':') == word.npos && word.find('=') != word.npos)
      texts.back() += "," + word;
    else
      texts.push_back(word);
  std::vector<NamedCallback> parsed;
  for (const auto& text : texts) {
    const auto colon = text.find(':');
    NamedCallback callback{text.substr(0, colon), nlohmann::json::object()};
    try {
      if (colon != text.npos) callback.options = parse_key_values(std::string_view(text).substr(colon + 1));
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("callback is '{}': {}", text, error.what()));
    }
    parsed.push_back(std::move(callback));
  }
  return parsed;
}

void throw_no_option(const NamedCallback& callback, std::string_view option,
                     const std::vector<std::string_view>& known) {
  throw ArgumentError(fmt::format("callback {}: there is no option '{}'{}", callback.name, option,
                                  did_you_mean(option, known)));
}

void throw_wrong_options(const NamedCallback& callback, const ArgumentError& error) {
  throw ArgumentError(fmt::format("callback {}: {}", callback.name, error.what()));
}

void throw_no_callback(std::string_view name, const std::vector<std::string_view>& known) {
  throw ArgumentError(fmt::format("callback is '{}': must be one of {}{}", name, fmt::join(known, ", "),
                                  did_you_mean(name, known)));
}

}  // namespace etude::inline v0::detail
