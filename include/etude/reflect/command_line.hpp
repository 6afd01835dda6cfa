#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/flag.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// Thrown for `--help` on the command line; `what()` is the help text.
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

/// A struct on the command line, type-erased.
struct FlagStruct {
  std::vector<Flag> flags = {};
  std::string_view about = {}, notes = {};
  bool reads_config = true;
  std::vector<std::pair<std::string_view, std::string_view>> names_elsewhere = {};
  std::function<void(JsonReader&, const nlohmann::ordered_json&)> read_json = {};
  std::function<void(std::vector<std::string>&)> validate = {};
};

template <class T>
FlagStruct flag_struct(T& args) {
  FlagStruct result;
  for_each_field(args, [&](std::string_view name, const FieldDoc& doc, auto& member) {
    result.flags.push_back(make_flag(name, doc, short_type_name<T>(), member));
  });
  if constexpr (requires { T::about; }) result.about = T::about;
  if constexpr (requires { T::notes; }) result.notes = T::notes;
  if constexpr (requires { T::reads_config; }) result.reads_config = T::reads_config;
  if constexpr (requires { names_elsewhere(args); })
    for (const auto& [there, here] : names_elsewhere(args)) result.names_elsewhere.emplace_back(there, here);
  result.read_json = [&args](JsonReader& reader, const nlohmann::ordered_json& json) {
    reader.read(json, args, "");
  };
  result.validate = [&args](std::vector<std::string>& lines) { collect_faults(args, lines); };
  return result;
}

/// Parses `words` into the structs that `structs` describe.
void parse_words(std::vector<FlagStruct> structs, const std::vector<std::string>& words,
                 std::string_view program);

template <class... Structs>
auto parse_into(const std::vector<std::string>& words, std::string_view program,
                std::tuple<Structs...> values) {
  static_assert(sizeof...(Structs) > 0 && (ReflectedStruct<Structs> && ...),
                "etude: parse_arguments needs structs defined with ETUDE_STRUCT");
  std::apply([&](auto&... args) { parse_words({flag_struct(args)...}, words, program); }, values);
  if constexpr (sizeof...(Structs) == 1) {
    return std::get<0>(std::move(values));
  } else {
    return values;
  }
}

std::string_view program_name(int argc, const char* const* argv);
[[noreturn]] void exit_with_help(const HelpRequested& help);
[[noreturn]] void exit_with_faults(const ArgumentError& error, std::string_view program);

template <class... Structs>
auto parse_or_exit(int argc, const char* const* argv, std::tuple<Structs...> defaults) {
  const auto program = program_name(argc, argv);
  try {
    return parse_into(std::vector<std::string>(argv + (argc > 0), argv + argc), program, std::move(defaults));
  } catch (const HelpRequested& help) {
    exit_with_help(help);
  } catch (const ArgumentError& error) {
    exit_with_faults(error, program);
  }
}

}  // namespace detail

/// Parses `words` (a command line without the program's name) and its `--config` file into structs: one is
/// returned directly, several as a tuple. Each field is a flag; fields not given keep their values from
/// `defaults`. If a struct has a free function `faults(args)`, a member `faults()` or a member `validate()`,
/// it is called too, and so is a free function `names_elsewhere(args)` for the names that other programs use.
///
/// Fields marked `positional()` take words without a flag, as in `convert --force in.pt out.pt`. A switch
/// then takes a value only after "=", and no flags follow the word "--". A struct may declare `static
/// constexpr std::string_view about` (help above the flags) and `notes` (below them), and `static constexpr
/// bool reads_config = false` for a command line without `--config`.
///
/// Throws an ArgumentError that lists all errors, one per line, and HelpRequested for `--help`.
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words) {
  return detail::parse_into(words, "program", std::tuple<Structs...>());
}
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words, Structs... defaults) {
  return detail::parse_into(words, "program", std::tuple<Structs...>(std::move(defaults)...));
}

/// Like the overload above, for `main`: prints help to stdout and exits with 0, or prints errors to stderr
/// and exits with 2.
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

}  // namespace etude::inline v0
