#include "etude/metrics/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::string metric_text(std::string_view name, double value) {
  if (!std::isfinite(value)) return fmt::format("{}", without_sign_of_nan(value));
  if (name.find("_mem_") != std::string_view::npos)
    return fmt::format("{:.0f}MB", std::floor(value / (1 << 20)));
  if (name.ends_with("_runtime") && value < 1e12) {
    const auto hundredths = static_cast<std::int64_t>(std::llround(value * 100));
    return fmt::format("{}:{:02}:{:02}.{:02}", hundredths / 360000, hundredths / 6000 % 60,
                       hundredths / 100 % 60, hundredths % 100);
  }
  if (name == "total_flos") return fmt::format("{:.0f}GF", std::floor(value / (1 << 30)));
  return fmt::format("{}", std::round(value * 1e4) / 1e4);
}

nlohmann::json metrics_json(const Metrics& metrics) {
  auto json = nlohmann::json::object();
  for (const auto& [name, value] : metrics)
    json[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  return json;
}

}  // namespace

}  // namespace detail

std::string format_metrics(std::string_view split, const Metrics& metrics) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : metrics) {
    rows.emplace_back(name, detail::metric_text(name, value));
    name_width = std::max(name_width, rows.back().first.size());
    value_width = std::max(value_width, rows.back().second.size());
  }
  std::ranges::sort(rows);
  auto text = fmt::format("***** {} metrics *****\n", split);
  for (const auto& [name, value] : rows)
    text += fmt::format("  {:<{}} = {:>{}}\n", name, name_width, value, value_width);
  return text;
}

void save_metrics(FileSystem& files, const std::filesystem::path& directory, std::string_view split,
                  const Metrics& metrics, bool combined) {
  files.create_directories(directory);
  const auto json = detail::metrics_json(metrics);
  write_file(files, directory / fmt::format("{}_results.json", split), json.dump(4) + "\n");
  if (!combined) return;
  const auto path = directory / "all_results.json";
  auto all = nlohmann::json::object();
  if (std::filesystem::exists(path)) {
    std::ifstream file(path);
    all = nlohmann::json::parse(file, nullptr, false);
    if (!all.is_object())
      throw CheckpointError(fmt::format("{}: must be a JSON object to add metrics to", path.string()));
  }
  all.update(json);
  write_file(files, path, all.dump(4) + "\n");
}

}  // namespace etude::inline v0
