#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/words.hpp"

namespace etude::detail {

/// One field of one of the structs, with its type gone.
struct Flag {
  std::string name, doc, group, placeholder, allowed, default_text;
  std::vector<std::string_view> choices;  // of an enum
  bool is_switch = false, is_list = false;
  std::function<bool(const std::vector<std::string>&)> read;
};

template <class T>
std::vector<std::string_view> choices_of() {
  if constexpr (ReflectedEnum<T>) {
    return {enum_names<T>.begin(), enum_names<T>.end()};
  } else {
    return {};
  }
}

template <class T>
Flag make_flag(std::string_view name, std::string_view doc, std::string_view group, T& member) {
  using Plain = typename without_optional<T>::type;
  return {.name = std::string(name),
          .doc = std::string(doc),
          .group = std::string(group),
          .placeholder = placeholder<T>(),
          .allowed = allowed_values<T>("none"),
          .default_text = spell_words(member),
          .choices = choices_of<Plain>(),
          .is_switch = std::same_as<Plain, bool>,
          .is_list = List<Plain>,
          .read = [&member](const std::vector<std::string>& words) { return read_words(words, member); }};
}

/// `text` broken between words into lines of at most `width` characters.
inline std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

inline std::string help_text(const std::vector<Flag>& flags, std::string_view program) {
  constexpr std::size_t width = 80, indent = 32;
  constexpr std::string_view introduction =
      "Flags are written --learning_rate 1e-3, --learning_rate=1e-3 or --learning-rate 1e-3. A BOOL flag may "
      "stand alone "
      "for true, and --no_flag is false; 'none' unsets what is unset by default. A flag counts over the "
      "--config file, "
      "and that over the default.";
  auto out = fmt::format("Usage: {} [--flag value ...]\n\n{}\n\n", program,
                         fmt::join(wrap(introduction, width), "\n"));

  const auto entry = [&](std::string flag, std::string_view text, std::string last) {
    flag = "  " + flag;
    if (flag.size() + 2 > indent) out += std::exchange(flag, "") + "\n";
    auto lines = wrap(text, width - indent);
    if (!lines.back().empty() && lines.back().size() + 1 + last.size() > width - indent) lines.emplace_back();
    lines.back() += (lines.back().empty() || last.empty() ? "" : " ") + last;
    for (const auto& line : lines) out += fmt::format("{:<{}}{}\n", std::exchange(flag, ""), indent, line);
  };
  entry("--config FILE", "a JSON file with an object whose keys are flags", "");
  entry("--help", "this text", "");
  std::string_view group;
  for (const auto& flag : flags) {
    if (flag.group != group) out += fmt::format("\n{}:\n", group = flag.group);
    const auto choices = flag.choices.empty() ? "" : fmt::format("one of {}", fmt::join(flag.choices, ", "));
    entry(fmt::format("--{} {}", flag.name, flag.is_switch ? "[BOOL]" : flag.placeholder),
          flag.doc + (flag.doc.empty() || choices.empty() ? "" : "; ") + choices,
          fmt::format("(default: {})", flag.default_text.empty() ? "\"\"" : flag.default_text));
  }
  return out;
}

}  // namespace etude::detail
