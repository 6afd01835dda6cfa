#include "etude/reflect/flag.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/words.hpp"

namespace etude::inline v0::detail {

namespace {

/// `text` wrapped into lines of at most `width` characters.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
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

}  // namespace

std::string positional_name(const Flag& flag) {
  std::string name = flag.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return name;
}

namespace {

std::string positional_words(const Flag& flag) {
  return positional_name(flag) + (flag.is_list ? " ..." : "");
}

}  // namespace

std::string positional_usage(const std::vector<Flag>& flags) {
  std::vector<std::string> words;
  for (const auto& flag : flags) {
    if (flag.spelling != Spelling::positional) continue;
    words.push_back(flag.is_required ? positional_words(flag) : "[" + positional_words(flag) + "]");
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string help_text(const std::vector<Flag>& flags, const HelpFrame& frame) {
  constexpr std::size_t width = 80, indent = 32;
  constexpr std::string_view introduction =
      "Flags are written --learning_rate 1e-3, --learning_rate=1e-3 or --learning-rate 1e-3. A BOOL flag may "
      "stand alone "
      "for true, and --no_flag is false; 'none' unsets what is unset by default.";
  constexpr std::string_view precedence = " A flag counts over the --config file, and that over the default.";
  const auto positional = positional_usage(flags);
  const auto opening = frame.about.empty()
                           ? std::string(introduction) + std::string(frame.has_config ? precedence : "")
                           : std::string(frame.about);
  auto out = fmt::format("Usage: {}{}{} [--flag value ...]\n\n{}\n\n", frame.program,
                         positional.empty() ? "" : " ", positional, fmt::join(wrap(opening, width), "\n"));

  const auto entry = [&](std::string flag, std::string_view text, const std::string& last) {
    flag = "  " + flag;
    if (flag.size() + 2 > indent) out += std::exchange(flag, "") + "\n";
    auto lines = wrap(text, width - indent);
    if (!lines.back().empty() && lines.back().size() + 1 + last.size() > width - indent) lines.emplace_back();
    lines.back() += (lines.back().empty() || last.empty() ? "" : " ") + last;
    for (const auto& line : lines) out += fmt::format("{:<{}}{}\n", std::exchange(flag, ""), indent, line);
  };
  const auto describe = [&](const Flag& flag, const std::string& spelled) {
    const bool is_needed = flag.spelling == Spelling::positional && flag.is_required;
    // The usage line already shows that such a list must not be empty.
    const auto range = is_needed && flag.is_list ? std::string() : flag.range;
    const auto choices =
        flag.choices.empty() ? range : fmt::format("one of {}", fmt::join(flag.choices, ", "));
    auto meaning = flag.doc + (flag.doc.empty() || choices.empty() ? "" : "; ") + choices;
    if (flag.spelling == Spelling::repeated) meaning += "; may be repeated";
    entry(spelled, meaning,
          is_needed ? ""
                    : fmt::format("(default: {})", flag.default_text.empty() ? "\"\"" : flag.default_text));
  };
  for (const auto& flag : flags)
    if (flag.spelling == Spelling::positional) describe(flag, positional_words(flag));
  if (frame.has_config) entry("--config FILE", "a JSON file with an object whose keys are flags", "");
  entry("--help", "this text", "");
  const bool has_groups = std::any_of(flags.begin(), flags.end(),
                                      [&](const Flag& flag) { return flag.group != flags.front().group; });
  const std::string_view switch_value = positional.empty() ? " [BOOL]" : "[=BOOL]";
  std::string_view group;
  for (const auto& flag : flags) {
    if (flag.spelling == Spelling::positional) continue;
    if (has_groups && flag.group != group) out += fmt::format("\n{}:\n", group = flag.group);
    describe(flag, fmt::format("--{}{}", flag.name, flag.is_switch ? switch_value : " " + flag.placeholder));
  }
  if (!frame.notes.empty()) {
    out += "\n";
    for (const auto& line : wrap(frame.notes, width)) out += line + "\n";
  }
  return out;
}

#define ETUDE_DETAIL_FLAG(...) \
  template Flag make_flag(std::string_view, const FieldDoc&, std::string_view, __VA_ARGS__&)
ETUDE_DETAIL_FOR_COMMON_TYPES(ETUDE_DETAIL_FLAG);
#undef ETUDE_DETAIL_FLAG

}  // namespace etude::inline v0::detail
