#include <fmt/format.h>
#include <torch/version.h>
#include <etude/base/error.hpp>
#include <etude/base/message.hpp>
#include <etude/io/manifest.hpp>
#include <etude/reflect/command_line.hpp>
#include <etude/reflect/nearest.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "commands/commands.hpp"
#include "commands/output.hpp"
#include "commands/train.hpp"

namespace {

using Words = std::vector<std::string>;

struct Subcommand {
  std::string_view name, about;
  int (*run)(std::string_view name, const Words& words);
};

/// Runs `action` with the options that `words` give.
template <class Options, int (*action)(const Options&)>
int run(std::string_view name, const Words& words) {
  const auto program = fmt::format("etude {}", name);
  Options options;
  try {
    options = etude::detail::parse_into(words, program, std::tuple<Options>());
  } catch (const etude::HelpRequested& help) {
    tool::print(help.what());
    return tool::success;
  } catch (const etude::ArgumentError& error) {
    throw tool::UsageError(fmt::format("{}\nsee {} --help", error.what(), program));
  }
  return action(options);
}

template <class Options, int (*action)(const Options&)>
constexpr Subcommand subcommand(std::string_view name) {
  return {name, Options::about, run<Options, action>};
}

/// A subcommand that reads its words like any program that trains.
template <int (*action)(const Words&)>
constexpr Subcommand training(std::string_view name, std::string_view about) {
  return {name, about, [](std::string_view, const Words& words) { return action(words); }};
}

constexpr Subcommand subcommands[] = {
    training<tool::train>("train", "Train a model of torch.export on files of data."),
    training<tool::evaluate>("evaluate", "Evaluate such a model."),
    training<tool::predict>("predict", "Write such a model's outputs to a file."),
    subcommand<tool::InspectOptions, tool::inspect>("inspect"),
    subcommand<tool::VerifyOptions, tool::verify>("verify"),
    subcommand<tool::ConvertOptions, tool::convert>("convert"),
    subcommand<tool::CompareOptions, tool::compare>("compare"),
    subcommand<tool::ReportOptions, tool::report>("report"),
    subcommand<tool::DescribeOptions, tool::describe>("describe"),
};

std::string help() {
  std::string text =
      "Usage: etude SUBCOMMAND ...\n\n"
      "Trains models that Python exported, and looks into, verifies, converts and\n"
      "compares what trainings leave.\n\n";
  for (const auto& each : subcommands) text += fmt::format("  {:<10}{}\n", each.name, each.about);
  return text +
         "\n  --help     this text; `etude SUBCOMMAND --help` lists a subcommand's flags\n"
         "  --version  the version\n\n"
         "Exit codes: 0 success, 1 faults found, 2 wrong arguments, 3 something can't be\n"
         "read or written.\n";
}

int run_program(const Words& words) {
  if (words.empty()) throw tool::UsageError("no subcommand is given: see etude --help");
  const auto& first = words.front();
  if (first == "-h" || first == "--help") {
    tool::print(help());
    return tool::success;
  }
  if (first == "--version") {
    tool::print(fmt::format("etude {} (LibTorch {})\n", etude::version_text(), TORCH_VERSION));
    return tool::success;
  }
  const auto found = std::ranges::find(subcommands, first, &Subcommand::name);
  if (found != std::end(subcommands)) return found->run(found->name, {words.begin() + 1, words.end()});
  const bool is_flag = first.starts_with('-');
  Words names{"--help", "--version"};
  if (!is_flag) {
    names.clear();
    for (const auto& each : subcommands) names.emplace_back(each.name);
  }
  throw tool::UsageError(fmt::format("there is no {} '{}'{}\nsee etude --help",
                                     is_flag ? "flag" : "subcommand", first,
                                     etude::did_you_mean(first, names)));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run_program({argv + (argc > 0), argv + argc});
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
