#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"
#include "output.hpp"

namespace tool {
namespace {

/// The candidates for a word.
struct Values {
  std::vector<std::string> words;
  bool are_files = false;
};

struct Flag {
  std::vector<std::string> names;  ///< with dashes
  std::string help;
  bool takes_value = false, repeats = false;
  Values values;
};

struct Command {
  std::string name, help;
  std::vector<Flag> flags;
  Values positional;
};

Values values_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  // CLI11 adds the set of CLI::IsMember to the type's name: "TEXT:{a,b}".
  const auto begin = type.find('{'), end = type.rfind('}');
  if (begin != type.npos && end != type.npos && begin < end)
    return {.words = CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',')};
  if (type.starts_with("PATH")) return {.words = {}, .are_files = true};
  if (type.starts_with("ARGUMENT")) {
    const auto names = etude::field_names<etude::TrainingArguments>();
    return {.words = {names.begin(), names.end()}};
  }
  return {};
}

Command command_of(const CLI::App& app) {
  Command command{.name = app.get_name(), .help = app.get_description(), .flags = {}, .positional = {}};
  for (const auto* option : app.get_options()) {
    if (option->get_positional()) {
      const auto values = values_of(*option);
      command.positional.are_files |= values.are_files;
      command.positional.words.insert(command.positional.words.end(), values.words.begin(),
                                      values.words.end());
    }
    if (!option->nonpositional()) continue;
    Flag flag{.names = {},
              .help = option->get_description(),
              .takes_value = option->get_items_expected_max() > 0,
              .repeats = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll,
              .values = values_of(*option)};
    for (const auto& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) flag.names.push_back("--" + name);
    command.flags.push_back(std::move(flag));
  }
  return command;
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> commands;
  for (const auto* each : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(command_of(*each));
  return commands;
}

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> flags_of(const Command& command) {
  std::vector<std::string> names;
  for (const auto& flag : command.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string bash_script(const Command& program, const std::vector<Command>& commands) {
  std::string values, words;
  for (const auto& command : commands) {
    for (const auto& flag : command.flags) {
      if (!flag.takes_value) continue;
      std::vector<std::string> cases;
      for (const auto& name : flag.names) cases.push_back(command.name + ":" + name);
      values +=
          fmt::format("    {}) {} ;;\n", fmt::join(cases, "|"),
                      flag.values.are_files
                          ? "return"
                          : fmt::format("words={}; only=1",
                                        shell_quoted(fmt::format("{}", fmt::join(flag.values.words, " ")))));
    }
    words += fmt::format("    {}:-*) words={} ;;\n", command.name,
                         shell_quoted(fmt::format("{}", fmt::join(flags_of(command), " "))));
    if (!command.positional.are_files)
      words += fmt::format("    {}:*) words={}; only=1 ;;\n", command.name,
                           shell_quoted(fmt::format("{}", fmt::join(command.positional.words, " "))));
  }
  return fmt::format(R"(# bash completion of etude: source <(etude completion bash)
_etude() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= words= only= i
  COMPREPLY=()
  # bash makes three words of --flag=value.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
    {})
      command=${{COMP_WORDS[i]}}
      break
      ;;
    esac
  done
  case $command:$previous in
{}    *)
    case $command:$current in
    :-*) words={} ;;
    :*) words={}; only=1 ;;
{}    esac
    ;;
  esac
  # Otherwise, what completes nothing else completes files.
  if [[ $only ]]; then compopt +o default 2>/dev/null; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _etude etude
)",
                     fmt::join(names_of(commands), " | "), values,
                     shell_quoted(fmt::format("{}", fmt::join(flags_of(program), " "))),
                     shell_quoted(fmt::format("{}", fmt::join(names_of(commands), " "))), words);
}

/// A description within an argument of zsh's _arguments and _describe.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_values(const Values& values) {
  if (values.are_files) return "_files";
  return values.words.empty() ? " " : fmt::format("({})", fmt::join(values.words, " "));
}

std::string zsh_arguments(const Command& command) {
  std::string text;
  for (const auto& flag : command.flags)
    for (const auto& name : flag.names)
      text += " " + shell_quoted(fmt::format("{}{}{}[{}]{}", flag.repeats ? "*" : "", name,
                                             flag.takes_value && name.starts_with("--") ? "=" : "",
                                             zsh_text(flag.help),
                                             flag.takes_value ? ":value:" + zsh_values(flag.values) : ""));
  return text;
}

std::string zsh_script(const Command& program, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const auto& command : commands) {
    names.push_back(shell_quoted(command.name + ":" + zsh_text(command.help)));
    cases += fmt::format("    {}) _arguments{} {} ;;\n", command.name, zsh_arguments(command),
                         shell_quoted("*:argument:" + zsh_values(command.positional)));
  }
  return fmt::format(R"(#compdef etude
# zsh completion of etude: source <(etude completion zsh)
_etude() {{
  local state line context
  local -A opt_args
  local -a commands
  commands=({})
  _arguments -C{} '1:command:->command' '*::argument:->argument'
  case $state in
  command) _describe -t commands command commands ;;
  argument)
    case $words[1] in
{}    esac
    ;;
  esac
}}
if [[ $funcstack[1] == _etude ]]; then _etude "$@"; else compdef _etude etude; fi
)",
                     fmt::join(names, " "), zsh_arguments(program), cases);
}

std::string fish_values(const Values& values) {
  if (values.are_files) return " -r -F";
  if (values.words.empty()) return " -x";
  return fmt::format(" -x -a {}", shell_quoted(fmt::format("{}", fmt::join(values.words, " "))));
}

std::string fish_flags(const Command& command, std::string_view condition) {
  std::string text;
  for (const auto& flag : command.flags) {
    text += fmt::format("complete -c etude -n '{}'", condition);
    for (const auto& name : flag.names)
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (flag.takes_value) text += fish_values(flag.values);
    text += " -d " + shell_quoted(flag.help) + "\n";
  }
  return text;
}

std::string fish_script(const Command& program, const std::vector<Command>& commands) {
  auto text =
      fmt::format("# fish completion of etude: etude completion fish | source\ncomplete -c etude -f\n");
  text += fish_flags(program, "__fish_use_subcommand");
  for (const auto& command : commands)
    text += fmt::format("complete -c etude -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        shell_quoted(command.help));
  for (const auto& command : commands) {
    const auto condition = "__fish_seen_subcommand_from " + command.name;
    text += fish_flags(command, condition);
    if (command.positional.are_files) text += fmt::format("complete -c etude -n '{}' -F\n", condition);
    if (!command.positional.words.empty())
      text += fmt::format("complete -c etude -n '{}' -a {}\n", condition,
                          shell_quoted(fmt::format("{}", fmt::join(command.positional.words, " "))));
  }
  return text;
}

}  // namespace

int complete(const CLI::App& app, const std::string& shell) {
  const auto program = command_of(app);
  const auto commands = commands_of(app);
  print(shell == "bash"  ? bash_script(program, commands)
        : shell == "zsh" ? zsh_script(program, commands)
                         : fish_script(program, commands));
  return success;
}

}  // namespace tool
