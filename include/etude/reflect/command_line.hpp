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

class CommandLine {
 public:
  template <class T>
  void add(T& args);

  void parse(const std::vector<std::string>& words, std::string_view program);

 private:
  /// Throws ArgumentError for a field whose flag already has another meaning.
  void check_name(std::string_view name, std::string_view group) const;

  /// Throws ArgumentError if the field can't have its spelling.
  void add_flag(Flag flag);

  static bool has_word(std::string_view line, std::string_view word);

  struct Given {
    std::string spelled = {}, name = {};
    std::vector<std::string> words = {};
    bool has_value = false;  // given with "=", so no further word belongs to it
  };

  /// The field of this name, which the config file has.
  const Flag* find(std::string_view name) const;

  /// The same, unless it is positional.
  const Flag* find_flag(std::string_view name) const;

  /// The switch that "no_<switch>" turns off.
  const Flag* find_negated(std::string_view name) const;

  /// The maximum number of words after a flag; those of an unknown flag are skipped with it.
  std::size_t most_words(const Given& given) const;

  std::vector<Given> split(const std::vector<std::string>& words, std::string_view program);

  /// Joins what a repeated flag is given each time.
  void merge_repeated(std::vector<Given>& given) const;

  /// Gives the positional fields the words without a flag.
  void apply_positional();

  void apply(const Given& given);

  void read(const Given& given, const Flag& flag, const std::vector<std::string>& words);

  void misread(const std::string& name, std::string fault);

  void read_config(const Given& given);

  /// The flag that an unknown name was probably meant to be, formatted by `did_you_mean`.
  std::string offer(std::string_view name, std::string_view prefix) const;

  std::vector<Flag> flags_;
  std::vector<std::function<void(JsonReader&, const nlohmann::ordered_json&)>> read_json_;
  std::vector<std::function<void(std::vector<std::string>&)>> validate_;
  std::vector<std::pair<std::string_view, std::string_view>> names_elsewhere_;
  std::vector<std::string> faults_, misread_, positional_words_, in_config_;
  std::string_view about_, notes_;
  bool has_positional_ = false, reads_config_ = true, has_unknown_flag_ = false;
};

// Not in the class, where it would be inline, and so compiled in each file despite `extern template`.
template <class T>
void CommandLine::add(T& args) {
  const auto group = short_type_name<T>();
  for_each_field(args, [&](std::string_view name, const FieldDoc& doc, auto& member) {
    check_name(name, group);
    add_flag(make_flag(name, doc, group, member));
  });
  if constexpr (requires { T::about; }) about_ = T::about;
  if constexpr (requires { T::notes; }) notes_ = T::notes;
  if constexpr (requires { T::reads_config; }) reads_config_ = reads_config_ && T::reads_config;
  read_json_.push_back(
      [&args](JsonReader& reader, const nlohmann::ordered_json& json) { reader.read(json, args, ""); });
  if constexpr (requires { names_elsewhere(args); })
    for (const auto& [there, here] : names_elsewhere(args)) names_elsewhere_.emplace_back(there, here);
  validate_.push_back([&args](std::vector<std::string>& lines) { collect_faults(args, lines); });
}

template <class... Structs>
auto parse_into(const std::vector<std::string>& words, std::string_view program,
                std::tuple<Structs...> values) {
  static_assert(sizeof...(Structs) > 0 && (ReflectedStruct<Structs> && ...),
                "etude: parse_arguments needs structs defined with ETUDE_STRUCT");
  CommandLine line;
  std::apply([&](auto&... args) { (line.add(args), ...); }, values);
  line.parse(words, program);
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
/// `defaults`. A free function `faults(args)`, a member `faults()` or a member `validate()` of a struct is
/// called too, and so is a free function `names_elsewhere(args)` for the names that other programs use.
///
/// Fields marked `positional()` take words without a flag, as in `convert --force in.pt out.pt`. A switch
/// then has its value after "=" only, and after a word "--" there are no more flags. A struct may declare
/// `static constexpr std::string_view about` (help above the flags) and `notes` (below them), and
/// `static constexpr bool reads_config = false` for a command line without `--config`.
///
/// Throws ArgumentError that lists all errors, one per line, and HelpRequested for `--help`.
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words) {
  return detail::parse_into(words, "program", std::tuple<Structs...>());
}
template <class... Structs>
auto parse_arguments(const std::vector<std::string>& words, Structs... defaults) {
  return detail::parse_into(words, "program", std::tuple<Structs...>(std::move(defaults)...));
}

/// The same for `main`: prints help to stdout and exits with 0, or prints errors to stderr and exits with 2.
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
