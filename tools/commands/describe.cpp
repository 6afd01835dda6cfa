#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "etude/reflect/flag.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"
#include "output.hpp"

namespace tool {
namespace {

struct Argument {
  etude::detail::Flag flag;
  bool is_optional = false;
  Json default_value;
};

std::vector<Argument> arguments_of_a_training() {
  etude::TrainingArguments defaults;
  std::vector<Argument> arguments;
  etude::for_each_field(defaults, [&](std::string_view name, const etude::FieldDoc& doc, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    arguments.push_back({etude::detail::make_flag(name, doc, "", member), etude::detail::is_optional<Member>,
                         etude::to_json_value(member)});
  });
  for (auto& argument : arguments) argument.flag.read = nullptr, argument.flag.check = nullptr;
  return arguments;
}

/// The indices of the arguments that match a name or a pattern with * and ?.
std::vector<std::size_t> find(const std::vector<Argument>& arguments, const std::string& wanted) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (::fnmatch(wanted.c_str(), arguments[i].flag.name.c_str(), 0) == 0) found.push_back(i);
  if (!found.empty()) return found;
  std::vector<std::string_view> names;
  for (const auto& argument : arguments) names.push_back(argument.flag.name);
  const bool is_pattern = wanted.find_first_of("*?[") != wanted.npos;
  std::string meant;
  for (const auto& [there, here] : etude::names_elsewhere(etude::TrainingArguments{}))
    if (there == wanted) meant = fmt::format("; did you mean '{}'?", here);
  if (meant.empty()) {
    std::string letters = wanted;
    if (is_pattern)
      std::erase_if(letters, [](char c) { return c == '*' || c == '?' || c == '[' || c == ']'; });
    meant = etude::did_you_mean(letters, names);
  }
  throw UsageError(is_pattern ? fmt::format("no argument matches '{}'{}", wanted, meant)
                              : fmt::format("there is no argument '{}'{}", wanted, meant));
}

std::string type_text(const Argument& argument) {
  auto type = argument.flag.placeholder;
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return type;
}

std::string text_of(const Argument& argument) {
  const auto& flag = argument.flag;
  auto text = fmt::format("{} ({}, default {})\n  {}\n", flag.name, type_text(argument),
                          flag.default_text.empty() ? "\"\"" : flag.default_text, flag.doc);
  if (!flag.choices.empty()) {
    text += fmt::format("  one of {}\n", fmt::join(flag.choices, ", "));
  } else if (!flag.range.empty()) {
    text += fmt::format("  {}{}\n", flag.range, argument.is_optional ? ", or none" : "");
  }
  return text;
}

Json json_of(const Argument& argument) {
  const auto& flag = argument.flag;
  return {{"name", flag.name},
          {"type", type_text(argument)},
          {"optional", argument.is_optional},
          {"default", argument.default_value},
          {"choices", flag.choices},
          {"allowed", flag.allowed},
          {"help", flag.doc}};
}

}  // namespace

int describe(const DescribeOptions& options) {
  const auto arguments = arguments_of_a_training();
  std::vector<std::size_t> places;
  for (const auto& name : options.names)
    for (const auto place : find(arguments, name))
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  if (options.names.empty())
    for (std::size_t i = 0; i < arguments.size(); ++i) places.push_back(i);
  if (options.json) {
    auto list = Json::array();
    for (const auto place : places) list.push_back(json_of(arguments[place]));
    print_json({{"arguments", std::move(list)}});
  } else {
    std::string text;
    for (const auto place : places) text += (text.empty() ? "" : "\n") + text_of(arguments[place]);
    print(text);
  }
  return success;
}

}  // namespace tool
