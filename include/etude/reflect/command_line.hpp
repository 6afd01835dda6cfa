#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/reflect/flag.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude {

/// Thrown where the command line asks for `--help`; `what()` is the text.
struct HelpRequested : Error {
  using Error::Error;
};

namespace detail {

template <class T>
void collect_faults(const T& args, std::vector<std::string>& into) {
  if constexpr (requires {
                  { faults(args) } -> std::convertible_to<std::vector<std::string>>;
                }) {
    for (auto& line : faults(args)) into.push_back(std::move(line));
  } else if constexpr (requires {
                         { args.faults() } -> std::convertible_to<std::vector<std::string>>;
                       }) {
    for (auto& line : args.faults()) into.push_back(std::move(line));
  } else if constexpr (requires { args.validate(); }) {
    try {
      args.validate();
    } catch (const ArgumentError& error) {
      into.push_back(error.what());
    }
  }
}

class CommandLine {
 public:
  template <class T>
  void add(T& args) {
    const auto group = short_type_name<T>();
    for_each_field(args, [&](std::string_view name, std::string_view doc, auto& member) {
      for (const auto& flag : flags_) {
        if (flag.name == name) {
          throw ArgumentError(
              fmt::format("{} has a field '{}', and so has {}: on a command line each name must stand "
                          "for one field",
                          group, name, flag.group));
        }
      }
      if (name == "config" || name == "help") {
        throw ArgumentError(
            fmt::format("{} has a field '{}': must be called otherwise, for --{} has its own meaning", group,
                        name, name));
      }
      flags_.push_back(make_flag(name, doc, group, member));
    });
    read_json_.push_back(
        [&args](JsonReader& reader, const nlohmann::ordered_json& json) { reader.read(json, args, ""); });
    validate_.push_back([&args](std::vector<std::string>& lines) { collect_faults(args, lines); });
  }

  void parse(const std::vector<std::string>& words, std::string_view program) {
    const auto given = split(words, program);
    for (const auto& flag : given) {
      if (flag.name == "config") read_config(flag);
    }
    for (const auto& flag : given) {
      if (flag.name != "config") apply(flag);
    }
    std::vector<std::string> lines;
    for (const auto& validate : validate_) validate(lines);
    // What was written wrong still has its default here: what that leads to is no fault of the user's.
    for (auto& line : lines) {
      if (std::none_of(misread_.begin(), misread_.end(),
                       [&](const auto& name) { return has_word(line, name); })) {
        faults_.push_back(std::move(line));
      }
    }
    if (!faults_.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults_, "\n")));
  }

 private:
  static bool has_word(std::string_view line, std::string_view word) {
    const auto in_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); };
    for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
      const auto end = at + word.size();
      if ((at == 0 || !in_word(line[at - 1])) && (end == line.size() || !in_word(line[end]))) return true;
    }
    return false;
  }

  struct Given {
    std::string spelled = {}, name = {};
    std::vector<std::string> words = {};
    bool has_value = false;  // by "=", so that no further word belongs to it
  };

  const Flag* find(std::string_view name) const {
    const auto it =
        std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
    return it == flags_.end() ? nullptr : &*it;
  }

  /// The switch that "no_<switch>" turns off.
  const Flag* find_negated(std::string_view name) const {
    const auto* flag = name.starts_with("no_") ? find(name.substr(3)) : nullptr;
    return flag && flag->is_switch ? flag : nullptr;
  }

  /// How many words may follow a flag; those of an unknown one are passed over with it.
  std::size_t most_words(const Given& given) const {
    if (given.has_value) return 0;
    if (const auto* flag = find(given.name)) return flag->is_list ? std::size_t(-1) : 1;
    if (given.name == "config") return 1;
    return find_negated(given.name) ? 0 : std::size_t(-1);
  }

  std::vector<Given> split(const std::vector<std::string>& words, std::string_view program) {
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
        faults_.push_back(fmt::format("'{}' belongs to no flag: write --name value", word));
      }
    }
    return given;
  }

  void apply(const Given& given) {
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
    } else {
      faults_.push_back(
          fmt::format("{} is no flag{}", given.spelled, did_you_mean(given.name, known_names(), "--")));
    }
  }

  void read(const Given& given, const Flag& flag, const std::vector<std::string>& words) {
    std::string more;
    try {
      if (flag.read(words)) return;
      if (words.size() == 1) more = did_you_mean(words[0], flag.choices);
    } catch (const ArgumentError& error) {
      more = fmt::format(" ({})", error.what());
    }
    misread(flag.name, fmt::format("{} is '{}': must be {}{}", given.spelled, fmt::join(words, " "),
                                   flag.allowed, more));
  }

  void misread(const std::string& name, std::string fault) {
    misread_.push_back(name);
    faults_.push_back(std::move(fault));
  }

  void read_config(const Given& given) {
    if (given.words.empty()) return faults_.push_back("--config has no value: must be a JSON file");
    const auto& path = given.words[0];
    std::ifstream file(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) {
      return faults_.push_back(fmt::format("--config is '{}': must be a JSON file that can be read", path));
    }
    const std::string text(std::istreambuf_iterator<char>(file), {});
    try {
      const auto json = parse_json(text);
      if (!json.is_object()) throw ArgumentError("must hold a JSON object with the names of flags as keys");
      JsonReader reader;
      for (const auto& read_json : read_json_) read_json(reader, json);
      for (const auto& fault : reader.faults) {
        misread(fault.substr(0, fault.find_first_of(" .[")), path + ": " + fault);
      }
      for (const auto& [key, value] : json.items()) {
        if (!find(key)) {
          faults_.push_back(
              fmt::format("{}: '{}' is no field{}", path, key, did_you_mean(key, known_names())));
        }
      }
      for (const auto& key : reader.unknown_keys) {
        // Each struct finds the other structs' keys unknown; what is left are those inside of a known field.
        if (!json.contains(key) && find(key.substr(0, key.find_first_of(".[")))) {
          faults_.push_back(fmt::format("{}: '{}' is no field", path, key));
        }
      }
    } catch (const ArgumentError& error) {
      faults_.push_back(path + ": " + error.what());
    }
  }

  std::vector<std::string_view> known_names() const {
    std::vector<std::string_view> names{"config", "help"};
    for (const auto& flag : flags_) names.push_back(flag.name);
    return names;
  }

  std::vector<Flag> flags_;
  std::vector<std::function<void(JsonReader&, const nlohmann::ordered_json&)>> read_json_;
  std::vector<std::function<void(std::vector<std::string>&)>> validate_;
  std::vector<std::string> faults_, misread_;
};

template <class... Structs>
auto parse_into(const std::vector<std::string>& words, std::string_view program,
                std::tuple<Structs...> values) {
  static_assert(
      sizeof...(Structs) > 0 && (ReflectedStruct<Structs> && ...),
      "etude: parse_arguments fills structs whose members are known: define them with ETUDE_STRUCT");
  CommandLine line;
  std::apply([&](auto&... args) { (line.add(args), ...); }, values);
  line.parse(words, program);
  if constexpr (sizeof...(Structs) == 1) {
    return std::get<0>(std::move(values));
  } else {
    return values;
  }
}

template <class... Structs>
auto parse_or_exit(int argc, const char* const* argv, std::tuple<Structs...> defaults) {
  std::string_view program = argc > 0 ? argv[0] : "program";
  program.remove_prefix(program.rfind('/') + 1);
  try {
    return parse_into(std::vector<std::string>(argv + (argc > 0), argv + argc), program, std::move(defaults));
  } catch (const HelpRequested& help) {
    fmt::print("{}", help.what());
    std::exit(0);
  } catch (const ArgumentError& error) {
    fmt::print(stderr, "{}\n{}: --help lists all flags\n", error.what(), program);
    std::exit(2);
  }
}

}  // namespace detail

/// The structs that `words` (a command line without the program's name) and its `--config` file describe: one
/// as itself, several as a tuple. Each field is a flag; `defaults` are what isn't given. A free function
/// `faults(args)`, a member `faults()` or a member `validate()` of a struct is asked too. Throws
/// ArgumentError with every fault that was found, one a line, and HelpRequested for `--help`.
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words) {
  return detail::parse_into(words, "program", std::tuple<Structs...>());
}
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words, Structs... defaults) {
  return detail::parse_into(words, "program", std::tuple<Structs...>(std::move(defaults)...));
}

/// The same for `main`: help goes to stdout and ends the program with 0, faults go to stderr and end it
/// with 2.
///
///     auto [args, data] = etude::parse_arguments<etude::TrainingArguments, DataArguments>(argc, argv);
template <class... Structs>
auto parse_arguments(int argc, const char* const* argv) {
  return detail::parse_or_exit(argc, argv, std::tuple<Structs...>());
}
template <class... Structs>
auto parse_arguments(int argc, const char* const* argv, Structs... defaults) {
  return detail::parse_or_exit(argc, argv, std::tuple<Structs...>(std::move(defaults)...));
}

}  // namespace etude
