#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.hpp"
#include "commands/output.hpp"
#include "commands/train.hpp"
#include "etude/base/error.hpp"
#include "etude/io/manifest.hpp"
#include "etude/reflect/nearest.hpp"

namespace {

using Action = std::function<int()>;

/// The command line. Each subcommand that is chosen sets `action`.
class CommandLine {
 public:
  CommandLine()
      : app_(
            "Trains models that Python exported, and looks into, verifies, converts and compares what "
            "trainings "
            "leave.",
            "etude") {
    app_.require_subcommand(1);
    app_.set_version_flag("--version",
                          fmt::format("etude {} (LibTorch {})", etude::version_text(), TORCH_VERSION),
                          "Print the version");
    app_.set_help_flag("-h,--help", "Print this text");
    app_.footer(
        "Exit codes: 0 success, 1 faults found, 2 wrong arguments, 3 something can't be read or written.\n"
        "`etude SUBCOMMAND --help` lists the options of a subcommand.");
    add_training("train", "Train a model of torch.export on files of data", tool::train);
    add_training("evaluate", "Evaluate such a model", tool::evaluate);
    add_training("predict", "Write such a model's outputs to a file", tool::predict);
    add_inspect();
    add_verify();
    add_convert();
    add_compare();
    add_report();
    add_describe();
    add_completion();
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app_.exit(error);
      tool::complain(fmt::format("{} (see etude{} --help)", explanation(error, argc, argv), chosen_name()));
      return tool::wrong_usage;
    }
    return action_();
  }

 private:
  CLI::App& add(const char* name, const char* help, const char* footer, Action action) {
    auto& command = *app_.add_subcommand(name, help);
    command.footer(footer);
    command.callback([this, action = std::move(action)] { action_ = action; });
    return command;
  }

  /// A subcommand that reads its words by itself, as every program that trains does.
  void add_training(const char* name, const char* help, int (*start)(const std::vector<std::string>&)) {
    auto& command = *app_.add_subcommand(name, help);
    command.set_help_flag();
    command.prefix_command();
    command.callback(
        [this, &command, start] { action_ = [&command, start] { return start(command.remaining()); }; });
  }

  static void add_json(CLI::App& command, bool& json) {
    command.add_flag("--json", json, "Print JSON, with the keys that docs/tool.md lists");
  }

  void add_inspect() {
    auto& command = add("inspect", "Show what a checkpoint, a run or a file of tensors has",
                        "Nothing is verified, and no tensor is read: see `etude verify`.",
                        [this] { return tool::inspect(inspect_); });
    command
        .add_option("PATH", inspect_.path, "A checkpoint, run or model folder, a .safetensors or a .pt file")
        ->type_name("PATH")
        ->required();
    command.add_flag("--tensors", inspect_.tensors, "List each tensor: name, dtype, shape and bytes");
    command
        .add_option("--key", inspect_.key, "The dict of a .pt file that has the tensors, such as state_dict")
        ->type_name("KEY");
    add_json(command, inspect_.json);
  }

  void add_verify() {
    auto& command =
        add("verify", "Check files for damage, and name each fault",
            "Exit codes: 0 no fault, 1 faults found, 2 wrong arguments, 3 a PATH can't be read at all.",
            [this] { return tool::verify(verify_); });
    command
        .add_option("PATH", verify_.paths, "Checkpoints, runs with all their checkpoints, models, or files")
        ->type_name("PATH")
        ->required();
    command.add_flag("--allow-extra", verify_.allow_extra,
                     "Files that the manifest doesn't list are no faults");
    add_json(command, verify_.json);
  }

  void add_convert() {
    auto& command = add(
        "convert", "Write weights to a .safetensors file",
        "A regular expression (ECMAScript) matches anywhere in a name; ^ and $ are its ends, and $1 in a\n"
        "REPLACEMENT is its first group. --only and --drop see the old names. --map comes before --rename,\n"
        "and several --rename are applied in order. What matches nothing is an error, as are two names\n"
        "that become one. OUT appears whole or not at all.",
        [this] { return tool::convert(convert_); });
    command.add_option("IN", convert_.from, "A .pt or .safetensors file, a checkpoint, run or model folder")
        ->type_name("PATH")
        ->required();
    command.add_option("OUT", convert_.to, "The .safetensors file to write")->type_name("PATH")->required();
    command
        .add_option("--key", convert_.key, "The dict of a .pt file that has the tensors, such as state_dict")
        ->type_name("KEY");
    const auto each = [&](const char* name, std::vector<std::string>& values, const char* help,
                          const char* type) {
      command.add_option(name, values, help)->type_name(type)->allow_extra_args(false);
    };
    each("--rename", convert_.rename, "Replace each match in a name; may be repeated", "REGEX=REPLACEMENT");
    command.add_option("--map", convert_.map, "A JSON file, {\"old name\": \"new name\", ...}")
        ->type_name("PATH");
    each("--only", convert_.only, "Keep only tensors whose name matches; may be repeated", "REGEX");
    each("--drop", convert_.drop, "Leave out tensors whose name matches; may be repeated", "REGEX");
    command.add_option("--dtype", convert_.dtype, "Convert floating-point tensors; others stay as they are")
        ->check(CLI::IsMember(std::vector<std::string>{"bfloat16", "float16", "float32"}))
        ->type_name("DTYPE");
    command.add_flag("--force", convert_.force, "Overwrite OUT");
    add_json(command, convert_.json);
  }

  void add_compare() {
    auto& command = add("compare", "Show runs side by side: metrics, steps, time, and arguments that differ",
                        "", [this] { return tool::compare(compare_); });
    command.add_option("RUN", compare_.runs, "Folders of runs, or checkpoints")
        ->type_name("PATH")
        ->required();
    add_json(command, compare_.json);
  }

  void add_report() {
    auto& command = add("report", "Write one HTML page that compares the pages of several runs",
                        "A run has a page, report.html, if ReportCallback was among its callbacks.",
                        [this] { return tool::report(report_); });
    command.add_option("RUN", report_.runs, "Folders of runs, or their pages")->type_name("PATH")->required();
    command.add_option("-o,--output", report_.page, "The page to write")->type_name("PATH")->required();
    command.add_flag("--force", report_.force, "Overwrite the page");
    add_json(command, report_.json);
  }

  void add_describe() {
    auto& command = add("describe", "Explain training arguments: type, default, allowed values", "",
                        [this] { return tool::describe(describe_); });
    command.add_option("NAME", describe_.names, "Arguments, or patterns such as '*_steps'; all by default")
        ->type_name("ARGUMENT");
    add_json(command, describe_.json);
  }

  void add_completion() {
    auto& command = add("completion", "Print a script that completes the command line in a shell",
                        "bash: source <(etude completion bash)\nzsh:  source <(etude completion zsh)\n"
                        "fish: etude completion fish | source",
                        [this] { return tool::complete(app_, shell_); });
    command.add_option("SHELL", shell_, "The shell")
        ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}))
        ->type_name("SHELL")
        ->required();
  }

  const CLI::App& chosen() const {
    const auto commands = app_.get_subcommands();
    return commands.empty() ? app_ : *commands.front();
  }

  std::string chosen_name() const {
    const auto& command = chosen();
    return &command == &app_ ? "" : " " + command.get_name();
  }

  /// CLI11's own text doesn't tell which word it doesn't know if another one is missing too.
  std::string explanation(const CLI::ParseError& error, int argc, char** argv) const {
    const auto& command = chosen();
    std::vector<std::string> names;
    for (const auto* each : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(each->get_name());
    for (const auto* option : command.get_options())
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (int i = 1; i < argc; ++i) {
      const std::string word = std::string(argv[i]).substr(0, std::string_view(argv[i]).find('='));
      if (std::ranges::find(names, word) != names.end()) continue;
      if (word.starts_with("--") && word.size() > 2)
        return fmt::format("there is no option '{}'{}", word, etude::did_you_mean(word, names));
      if (&command == &app_)
        return fmt::format("there is no subcommand '{}'{}", word, etude::did_you_mean(word, names));
    }
    return error.what();
  }

  CLI::App app_;
  Action action_;
  tool::InspectOptions inspect_;
  tool::VerifyOptions verify_;
  tool::ConvertOptions convert_;
  tool::CompareOptions compare_;
  tool::ReportOptions report_;
  tool::DescribeOptions describe_;
  std::string shell_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = CommandLine().run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    tool::complain("stdout can't be written to");
  } catch (const tool::UsageError& error) {
    tool::complain(error.what());
    return tool::wrong_usage;
  } catch (...) {
    tool::complain(etude::message_of(std::current_exception()));
  }
  return tool::unreadable;
}
