#include "renaming.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "commands.hpp"
#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"

namespace tool {

using etude::detail::in_quotes;

namespace {

// std::regex recurses for each character, so a very long name in a file would overflow the stack.
constexpr std::size_t longest_name = 4096;

std::map<std::string, std::string> read_map(const std::string& path) {
  const etude::MappedFile file(path);
  try {
    return etude::from_json_text<std::map<std::string, std::string>>(file.text());
  } catch (const etude::ArgumentError& error) {
    throw UsageError(fmt::format("--map is {}: must be a JSON object of old and new names: {}",
                                 in_quotes(path), error.what()));
  }
}

}  // namespace

Renaming::Pattern Renaming::pattern(const char* option, const std::string& text, const std::string& regex) {
  try {
    return {.option = option, .text = text, .regex = std::regex(regex)};
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("{} is {}: must be a regular expression (ECMAScript): {}", option,
                                 in_quotes(text), error.what()));
  }
}

Renaming::Renaming(const std::string& map_file, const std::vector<std::string>& rename,
                   const std::vector<std::string>& only, const std::vector<std::string>& drop) {
  if (!map_file.empty()) map_ = read_map(map_file);
  for (const auto& text : rename) {
    const auto equals = text.find('=');
    if (equals == text.npos || equals == 0)
      throw UsageError(fmt::format("--rename is {}: must be REGEX=REPLACEMENT", in_quotes(text)));
    rename_.push_back(pattern("--rename", text, text.substr(0, equals)));
    rename_.back().replacement = text.substr(equals + 1);
  }
  for (const auto& text : only) only_.push_back(pattern("--only", text, text));
  for (const auto& text : drop) drop_.push_back(pattern("--drop", text, text));
}

std::string Renaming::renamed(const std::string& name, std::vector<bool>& used) const {
  if (const auto found = map_.find(name); found != map_.end()) return found->second;
  auto result = name;
  for (std::size_t i = 0; i < rename_.size(); ++i) {
    if (!std::regex_search(result, rename_[i].regex)) continue;
    used[i] = true;
    result = std::regex_replace(result, rename_[i].regex, rename_[i].replacement);
  }
  return result;
}

std::vector<Renamed> Renaming::apply(const std::vector<std::string>& names) const {
  const bool has_patterns = !rename_.empty() || !only_.empty() || !drop_.empty();
  std::vector<bool> rename_used(rename_.size()), only_used(only_.size()), drop_used(drop_.size());
  const auto any_matches = [](const std::string& name, const std::vector<Pattern>& patterns,
                              std::vector<bool>& used) {
    bool found = false;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (std::regex_search(name, patterns[i].regex)) used[i] = found = true;
    return found;
  };
  std::vector<Renamed> result;
  std::map<std::string, std::string> old_names;
  for (const auto& name : names) {
    if (has_patterns && name.size() > longest_name)
      throw UsageError(fmt::format("{} has {} characters: patterns allow names of at most {}",
                                   in_quotes(name), name.size(), longest_name));
    const bool is_wanted = only_.empty() || any_matches(name, only_, only_used);
    if (any_matches(name, drop_, drop_used) || !is_wanted) continue;
    auto now = renamed(name, rename_used);
    if (now.empty() || !etude::is_utf8(now))
      throw UsageError(
          fmt::format("{} becomes {}: a name must be UTF-8 and not empty", in_quotes(name), in_quotes(now)));
    if (const auto [place, is_new] = old_names.emplace(now, name); !is_new)
      throw UsageError(
          fmt::format("{} and {} both become {}", in_quotes(place->second), in_quotes(name), in_quotes(now)));
    result.emplace_back(name, std::move(now));
  }
  const auto refuse_unused = [&](const std::vector<Pattern>& patterns, const std::vector<bool>& used) {
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (!used[i])
        throw UsageError(fmt::format("{} is {}: matches none of the {} names", patterns[i].option,
                                     in_quotes(patterns[i].text), names.size()));
  };
  for (const auto& [old, now] : map_)
    if (std::ranges::find(names, old) == names.end())
      throw UsageError(
          fmt::format("--map has {}, which is no tensor{}", in_quotes(old), etude::did_you_mean(old, names)));
  refuse_unused(only_, only_used);
  refuse_unused(drop_, drop_used);
  refuse_unused(rename_, rename_used);
  if (result.empty() && !names.empty())
    throw UsageError(fmt::format("no tensor is left of {}: --only or --drop excludes all", names.size()));
  return result;
}

}  // namespace tool
