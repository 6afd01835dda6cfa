#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
}

/// The subcommands of the program `etude`. Each prints its result on stdout and returns the exit code; what
/// can't be read or written is an exception.
namespace tool {

/// The exit codes, as docs/tool.md lists them.
enum ExitCode { success = 0, faults_found = 1, wrong_usage = 2, unreadable = 3 };

/// A wrong argument.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct InspectOptions {
  std::string path, key;
  bool tensors = false, json = false;
};
int inspect(const InspectOptions& options);

struct VerifyOptions {
  std::vector<std::string> paths;
  bool allow_extra = false, json = false;
};
int verify(const VerifyOptions& options);

struct ConvertOptions {
  std::string from, to, key, map, dtype;
  std::vector<std::string> rename, only, drop;
  bool force = false, json = false;
};
int convert(const ConvertOptions& options);

struct CompareOptions {
  std::vector<std::string> runs;
  bool json = false;
};
int compare(const CompareOptions& options);

struct ReportOptions {
  std::vector<std::string> runs;
  std::string page;
  bool force = false, json = false;
};
int report(const ReportOptions& options);

struct DescribeOptions {
  std::vector<std::string> names;
  bool json = false;
};
int describe(const DescribeOptions& options);

/// Prints a script that completes the command line of `app`.
int complete(const CLI::App& app, const std::string& shell);

}  // namespace tool
