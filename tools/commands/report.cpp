#include "etude/report/run_report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "output.hpp"

namespace tool {

namespace fs = std::filesystem;

int report(const ReportOptions& options) {
  const fs::path page = options.output;
  std::error_code error;
  if (fs::exists(page, error) && !options.force)
    throw UsageError(fmt::format("--output is '{}', which exists: --force overwrites it", page.string()));
  std::vector<fs::path> paths;
  auto list = Json::array();
  for (const auto& given : options.runs) {
    paths.emplace_back(without_slash(given));
    for (const auto& source : {paths.back(), paths.back() / "report.html"})
      if (fs::equivalent(source, page, error))
        throw UsageError(
            fmt::format("--output is '{}': must be another page than that of a run", page.string()));
    for (const auto& run : etude::read_report(paths.back()))
      list.push_back({{"path", paths.back().string()},
                      {"name", run.name},
                      {"status", etude::to_string(run.status)},
                      {"step", run.step}});
  }
  etude::write_comparison(page, paths);
  if (options.json)
    print_json({{"page", page.string()}, {"runs", std::move(list)}});
  else
    print(fmt::format("{}: {}\n", plain(page.string()), counted(list.size(), "run")));
  return success;
}

}  // namespace tool
