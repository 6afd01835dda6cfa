#pragma once

#include <etude/reflect/enum.hpp>
#include <etude/reflect/struct.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The subcommands of the program `etude`. Each prints its result on stdout and returns the exit code, and
/// throws an exception for what can't be read or written.
namespace tool {

/// The exit codes, as docs/tool.md lists them.
enum ExitCode { success = 0, faults_found = 1, wrong_usage = 2, unreadable = 3 };

/// A wrong argument.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr auto json_help = "print JSON, with the keys that docs/tool.md lists";
inline constexpr auto key_help = "the dict of a .pt file that has the tensors, such as state_dict";

struct InspectOptions {
  ETUDE_STRUCT(InspectOptions,
               (std::string, path,
                "a checkpoint, run or model folder, a .safetensors or a .pt file" | positional()),
               (bool, tensors, "list each tensor: name, dtype, shape and bytes", false),
               (std::string, key, key_help), (bool, json, json_help, false));
  static constexpr std::string_view about = "Show what a checkpoint, a run or a file of tensors has.";
  static constexpr std::string_view notes = "Nothing is verified, and no tensor is read: see `etude verify`.";
  static constexpr bool reads_config = false;
};
int inspect(const InspectOptions& options);

struct VerifyOptions {
  ETUDE_STRUCT(VerifyOptions,
               (std::vector<std::string>, paths,
                "checkpoints, runs with all their checkpoints, models, or files" | not_empty() |
                    positional()),
               (bool, allow_extra, "files that the manifest doesn't list are no faults", false),
               (bool, json, json_help, false));
  static constexpr std::string_view about = "Check files for damage, and name each fault.";
  static constexpr std::string_view notes =
      "Exit codes: 0 no fault, 1 faults found, 2 wrong arguments, 3 a path can't be read at all.";
  static constexpr bool reads_config = false;
};
int verify(const VerifyOptions& options);

ETUDE_ENUM(WrittenDtype, bfloat16, float16, float32);

struct ConvertOptions {
  ETUDE_STRUCT(
      ConvertOptions,
      (std::string, in, "a .pt or .safetensors file, a checkpoint, run or model folder" | positional()),
      (std::string, out, "the .safetensors file to write" | positional()), (std::string, key, key_help),
      (std::vector<std::string>, rename, "REGEX=REPLACEMENT: replace each match in a name" | repeated()),
      (std::string, map, "a JSON file, {\"old name\": \"new name\", ...}"),
      (std::vector<std::string>, only,
       "keep only tensors whose name matches this regular expression" | repeated()),
      (std::vector<std::string>, drop, "leave out tensors whose name matches" | repeated()),
      (std::optional<WrittenDtype>, dtype, "convert floating-point tensors; others stay as they are"),
      (bool, force, "overwrite OUT", false), (bool, json, json_help, false));
  static constexpr std::string_view about = "Write weights to a .safetensors file.";
  static constexpr std::string_view notes =
      "A regular expression (ECMAScript) matches anywhere in a name; ^ and $ are its ends, and $1 in a "
      "REPLACEMENT is its first group. --only and --drop see the old names. --map comes before --rename, and "
      "several --rename are applied in order. What matches nothing is an error, as are two names that become "
      "one. OUT appears whole or not at all.";
  static constexpr bool reads_config = false;
};
int convert(const ConvertOptions& options);

struct CompareOptions {
  ETUDE_STRUCT(CompareOptions,
               (std::vector<std::string>, runs,
                "folders of runs, or checkpoints" | not_empty() | positional()),
               (bool, json, json_help, false));
  static constexpr std::string_view about =
      "Show runs side by side: metrics, steps, time, arguments that differ.";
  static constexpr bool reads_config = false;
};
int compare(const CompareOptions& options);

struct ReportOptions {
  ETUDE_STRUCT(ReportOptions,
               (std::vector<std::string>, runs,
                "folders of runs, or their pages" | not_empty() | positional()),
               (std::string, output, "the page to write"), (bool, force, "overwrite the page", false),
               (bool, json, json_help, false));
  static constexpr std::string_view about = "Write one HTML page that compares the pages of several runs.";
  static constexpr std::string_view notes =
      "A run has a page, report.html, if ReportCallback was among its callbacks.";
  static constexpr bool reads_config = false;

  std::vector<std::string> faults() const {
    if (!output.empty()) return {};
    return {"output is not given: must be the page to write"};
  }
};
int report(const ReportOptions& options);

struct DescribeOptions {
  ETUDE_STRUCT(DescribeOptions,
               (std::vector<std::string>, names,
                "arguments, or patterns such as '*_steps'; all by default" | positional()),
               (bool, json, json_help, false));
  static constexpr std::string_view about = "Explain training arguments: type, default, allowed values.";
  static constexpr bool reads_config = false;
};
int describe(const DescribeOptions& options);

}  // namespace tool
