#include "etude/reflect/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/reflect/flag.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

void CommandLine::check_name(std::string_view name, std::string_view group) const {
  if (const auto* flag = find(name))
    throw ArgumentError(
        fmt::format("{} has a field '{}', and so does {}: on a command line each name must be "
                    "unique",
                    group, name, flag->group));
  if (name == "config" || name == "help")
    throw ArgumentError(fmt::format(
        "{} has a field '{}': must have another name, since --{} has its own meaning", group, name, name));
}

void CommandLine::parse(const std::vector<std::string>& words, std::string_view program) {
  const auto given = split(words, program);
  for (const auto& flag : given) {
    if (flag.name == "config") read_config(flag);
  }
  for (const auto& flag : given) {
    if (flag.name != "config") apply(flag);
  }
  std::vector<std::string> lines;
  for (const auto& flag : flags_) flag.check(lines);
  const auto fields = lines;
  std::vector<std::string> more;
  for (const auto& validate : validate_) validate(more);
  // A struct's own errors may include those of its fields.
  for (auto& line : more)
    if (std::find(fields.begin(), fields.end(), line) == fields.end()) lines.push_back(std::move(line));
  // A malformed value leaves the default in place: errors that result from it aren't the user's.
  for (auto& line : lines) {
    if (std::none_of(misread_.begin(), misread_.end(),
                     [&](const auto& name) { return has_word(line, name); })) {
      faults_.push_back(std::move(line));
    }
  }
  if (!faults_.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults_, "\n")));
}

bool CommandLine::has_word(std::string_view line, std::string_view word) {
  const auto in_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); };
  for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || !in_word(line[at - 1])) && (end == line.size() || !in_word(line[end]))) return true;
  }
  return false;
}

const Flag* CommandLine::find(std::string_view name) const {
  const auto it =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
  return it == flags_.end() ? nullptr : &*it;
}

const Flag* CommandLine::find_negated(std::string_view name) const {
  const auto* flag = name.starts_with("no_") ? find(name.substr(3)) : nullptr;
  return flag && flag->is_switch ? flag : nullptr;
}

std::size_t CommandLine::most_words(const Given& given) const {
  if (given.has_value) return 0;
  if (const auto* flag = find(given.name)) return flag->is_list ? std::size_t(-1) : 1;
  if (given.name == "config") return 1;
  return find_negated(given.name) ? 0 : std::size_t(-1);
}

std::vector<CommandLine::Given> CommandLine::split(const std::vector<std::string>& words,
                                                   std::string_view program) {
  std::vector<Given> given;
  for (const auto& word : words) {
    if (word == "-h" || word == "--help") throw HelpRequested(help_text(flags_, program));
    if (word.starts_with("--") && word.size() > 2) {
      const auto equals = word.find('=');
      Given flag{.spelled = word.substr(0, equals)};
      flag.name = flag.spelled.substr(2);
      if (equals != word.npos) {
        flag.words = {word.substr(equals + 1)};
        flag.has_value = true;
      }
      std::replace(flag.name.begin(), flag.name.end(), '-', '_');
      given.push_back(std::move(flag));
    } else if (!given.empty() && given.back().words.size() < most_words(given.back())) {
      given.back().words.push_back(word);
    } else {
      faults_.push_back(fmt::format("unexpected argument '{}': write --name value", word));
    }
  }
  return given;
}

void CommandLine::apply(const Given& given) {
  if (const auto* flag = find(given.name)) {
    if (given.words.empty() && !flag->is_list && !flag->is_switch) {
      misread(given.name, fmt::format("{} has no value: must be {}", given.spelled, flag->allowed));
    } else {
      read(given, *flag,
           given.words.empty() && flag->is_switch ? std::vector<std::string>{"true"} : given.words);
    }
  } else if (const auto* negated = find_negated(given.name)) {
    if (given.has_value) {
      misread(negated->name, fmt::format("{} takes no value, but has '{}'", given.spelled, given.words[0]));
    } else {
      read(given, *negated, {"false"});
    }
  } else if (given.name == "help") {
    faults_.push_back(fmt::format("{} takes no value, but has '{}'", given.spelled, given.words[0]));
  } else {
    faults_.push_back(fmt::format("unknown flag {}{}", given.spelled, offer(given.name, "--")));
  }
}

void CommandLine::read(const Given& given, const Flag& flag, const std::vector<std::string>& words) {
  std::string more;
  try {
    if (flag.read(words)) return;
    if (words.size() == 1) more = did_you_mean(words[0], flag.choices);
  } catch (const ArgumentError& error) {
    more = fmt::format(" ({})", error.what());
  }
  misread(flag.name,
          fmt::format("{} is '{}': must be {}{}", given.spelled, fmt::join(words, " "), flag.allowed, more));
}

void CommandLine::misread(const std::string& name, std::string fault) {
  misread_.push_back(name);
  faults_.push_back(std::move(fault));
}

void CommandLine::read_config(const Given& given) {
  if (given.words.empty()) return faults_.push_back("--config has no value: must be a JSON file");
  const auto& path = given.words[0];
  const auto text = read_file(path);
  if (!text)
    return faults_.push_back(fmt::format("--config is '{}': must be a JSON file that can be read", path));
  try {
    const auto json = parse_json(*text);
    if (!json.is_object()) throw ArgumentError("must hold a JSON object with the names of flags as keys");
    JsonReader reader;
    for (const auto& read_json : read_json_) read_json(reader, json);
    for (const auto& fault : reader.faults) {
      misread(fault.substr(0, fault.find_first_of(" .[")), path + ": " + fault);
    }
    for (const auto& [key, value] : json.items()) {
      if (!find(key)) {
        faults_.push_back(fmt::format("{}: unknown field '{}'{}", path, key, offer(key, "")));
      }
    }
    for (const auto& key : reader.unknown_keys) {
      // The structs report each other's keys as unknown; only keys inside a known field remain.
      if (!json.contains(key) && find(key.substr(0, key.find_first_of(".[")))) {
        faults_.push_back(fmt::format("{}: unknown field '{}'", path, key));
      }
    }
  } catch (const ArgumentError& error) {
    faults_.push_back(path + ": " + error.what());
  }
}

std::string CommandLine::offer(std::string_view name, std::string_view prefix) const {
  for (const auto& [there, here] : names_elsewhere_)
    if (name == there) return did_you_mean(here, std::vector{here}, prefix);
  std::vector<std::string_view> names{"config", "help"};
  for (const auto& flag : flags_) names.push_back(flag.name);
  return did_you_mean(name, names, prefix);
}

std::string_view program_name(int argc, const char* const* argv) {
  std::string_view program = argc > 0 ? argv[0] : "program";
  program.remove_prefix(program.rfind('/') + 1);
  return program;
}

void exit_with_help(const HelpRequested& help) {
  fmt::print("{}", help.what());
  std::exit(0);
}

void exit_with_faults(const ArgumentError& error, std::string_view program) {
  fmt::print(stderr, "{}\n{}: --help lists all flags\n", error.what(), program);
  std::exit(2);
}

}  // namespace detail

}  // namespace etude::inline v0
