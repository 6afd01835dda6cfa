#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "etude/base/console.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/three_way.hpp"
#include "etude/study/trial_text.hpp"
#include "etude/trainer_state.hpp"
#include "output.hpp"
#include "run_folder.hpp"

namespace tool {
namespace {

namespace fs = std::filesystem;

struct Best {
  double value = 0;
  std::int64_t step = 0;
};

struct Run {
  fs::path path, checkpoint;
  etude::TrainerState state;
  std::optional<Json> arguments;
  std::vector<std::pair<std::string, double>> last;  ///< of each logged number
  std::map<std::string, Best> best;

  std::optional<double> logged(std::string_view name) const {
    const auto found = std::ranges::find(last, name, [](const auto& entry) { return entry.first; });
    return found == last.end() ? std::nullopt : std::optional(found->second);
  }
};

/// True if greater values are better; unset unless the metric's name ends in "loss" or the metric decides
/// which model is best.
std::optional<bool> greater_is_better(const std::string& name,
                                      const std::optional<etude::TrainingArguments>& arguments) {
  if (name == best_metric_name(arguments)) return arguments->greater_is_better;
  if (name.starts_with("eval_") && name.ends_with("loss")) return false;
  return std::nullopt;
}

std::int64_t step_of(const etude::LogEntry& line) {
  const auto step = line.find("step");
  return step != line.end() && step->second.is_number_integer() ? step->second.get<std::int64_t>() : 0;
}

/// Logs after the summary, such as an evaluation of the best model, don't belong to the training.
void read_history(Run& run) {
  const auto arguments = arguments_of(run.arguments);
  std::optional<std::int64_t> summed_up_at;
  for (const auto& line : run.state.log_history) {
    const auto step = step_of(line);
    if (line.contains("train_runtime") && !line.contains("loss"))
      summed_up_at = step;
    else if (summed_up_at && step <= *summed_up_at)
      continue;
    for (const auto& [name, value] : line) {
      if (!value.is_number() || name == "step" || name == "epoch") continue;
      const auto number = value.get<double>();
      const auto known = std::ranges::find(run.last, name, [](const auto& entry) { return entry.first; });
      if (known == run.last.end())
        run.last.emplace_back(name, number);
      else
        known->second = number;
      const auto greater = greater_is_better(name, arguments);
      if (!greater || std::isnan(number)) continue;
      const Best here{number, step};
      const auto [best, is_first] = run.best.emplace(name, here);
      if (!is_first && (*greater ? number > best->second.value : number < best->second.value))
        best->second = here;
    }
  }
}

/// A run's state, from its newest checkpoint or from the file that it wrote at the end.
Run read_run(const fs::path& path) {
  Run run{.path = path, .checkpoint = path, .state = {}, .arguments = {}, .last = {}, .best = {}};
  const auto kind = kind_of(path);
  if (kind != Kind::run && kind != Kind::checkpoint)
    throw etude::CheckpointError(
        fmt::format("{} is neither the folder of a run nor a checkpoint", path.string()));
  std::error_code error;
  const bool has_checkpoints = kind == Kind::run && !etude::checkpoint_folders(path).empty();
  if (has_checkpoints) run.checkpoint = newest_checkpoint(path);
  run.state = etude::load_trainer_state(run.checkpoint);
  run.arguments = read_json_file(run.checkpoint / "training_args.json");
  if (has_checkpoints && fs::exists(path / "trainer_state.json", error)) {
    auto last = etude::load_trainer_state(path);
    if (last.global_step >= run.state.global_step && last.log_history.size() >= run.state.log_history.size())
      run.state = std::move(last);
  }
  read_history(run);
  return run;
}

/// The arguments that differ between runs, without output_dir, which always differs.
std::vector<std::string> differing_arguments(const std::vector<Run>& runs) {
  std::vector<std::string> names;
  const auto value_of = [](const Run& run, const std::string& name) -> const Json* {
    if (!run.arguments || !run.arguments->is_object()) return nullptr;
    const auto found = run.arguments->find(name);
    return found == run.arguments->end() ? nullptr : &*found;
  };
  for (const auto& run : runs) {
    if (!run.arguments || !run.arguments->is_object()) continue;
    for (const auto& [key, value] : run.arguments->items()) {
      const std::string name = key;
      if (name == "output_dir" || std::ranges::find(names, name) != names.end()) continue;
      const auto& first = value;
      if (std::ranges::any_of(runs, [&](const Run& other) {
            const auto* there = value_of(other, name);
            return other.arguments && (!there || !etude::detail::same_json(*there, first));
          }))
        names.push_back(name);
    }
  }
  return names;
}

Json run_json(const Run& run, const std::vector<std::string>& arguments) {
  auto last = Json::object(), best = Json::object(), differing = Json::object();
  for (const auto& [name, value] : run.last) last[name] = etude::to_json_value(value);
  for (const auto& [name, value] : run.best)
    best[name] = {{"value", etude::to_json_value(value.value)}, {"step", value.step}};
  for (const auto& name : arguments)
    if (run.arguments && run.arguments->contains(name)) differing[name] = (*run.arguments)[name];
  return {{"path", run.path.string()},
          {"checkpoint", run.checkpoint.string()},
          {"global_step", run.state.global_step},
          {"max_steps", run.state.max_steps},
          {"epoch", etude::to_json_value(run.state.epoch)},
          {"train_runtime", etude::to_json_value(run.logged("train_runtime"))},
          {"last", std::move(last)},
          {"best", std::move(best)},
          {"arguments", std::move(differing)}};
}

bool is_measure_of_speed(std::string_view name) {
  return name.ends_with("_runtime") || name.ends_with("_per_second") || name == "total_flos";
}

/// True if `train_runtime` covers only part of the run's steps, because it restarts when a run is resumed.
bool is_time_of_a_part(const Run& run) {
  const auto seconds = run.logged("train_runtime"), rate = run.logged("train_steps_per_second");
  if (!seconds || !rate) return false;
  constexpr double seconds_digit = 1e-4, rate_digit = 1e-3;  // the log's precision
  const double timed = *seconds * *rate, error = seconds_digit * *rate + rate_digit * *seconds;
  return timed + error + 1 < static_cast<double>(run.state.global_step);
}

std::string time_text(const Run& run) {
  const auto seconds = run.logged("train_runtime");
  if (!seconds) return {};
  return etude::detail::duration_text(*seconds) + (is_time_of_a_part(run) ? " since it was resumed" : "");
}

using Row = std::vector<std::string>;

std::vector<Row> rows_of(const std::vector<Run>& runs, const std::vector<std::string>& arguments) {
  constexpr int digits = 6;
  std::vector<Row> rows;
  const auto add = [&](const std::string& title, auto text_of) {
    Row row{etude::detail::cut_name(title, 40)};
    for (const auto& run : runs) row.push_back(text_of(run));
    if (std::ranges::any_of(row.begin() + 1, row.end(), [](const auto& cell) { return !cell.empty(); }))
      rows.push_back(std::move(row));
  };
  add("run", [](const Run& run) { return etude::detail::cut_name(run.path.string(), 40); });
  add("step", [](const Run& run) {
    return run.state.global_step == run.state.max_steps
               ? std::to_string(run.state.global_step)
               : fmt::format("{} of {}", run.state.global_step, run.state.max_steps);
  });
  add("epoch", [](const Run& run) { return fmt::format("{:.2f}", run.state.epoch); });
  add("time", time_text);
  std::vector<std::string> metrics;
  std::set<std::string> best;
  for (const auto& run : runs) {
    for (const auto& [name, value] : run.last)
      if ((name.starts_with("eval_") || name == "loss" || name == "train_loss") &&
          !is_measure_of_speed(name) && std::ranges::find(metrics, name) == metrics.end())
        metrics.push_back(name);
    for (const auto& [name, value] : run.best) best.insert(name);
  }
  for (const auto& name : best)
    add("best " + name, [&](const Run& run) {
      const auto found = run.best.find(name);
      return found == run.best.end()
                 ? std::string()
                 : fmt::format("{} at step {}", etude::detail::number_text(found->second.value, digits),
                               found->second.step);
    });
  for (const auto& name : metrics)
    add("last " + name, [&](const Run& run) {
      const auto value = run.logged(name);
      return value ? etude::detail::number_text(*value, digits) : std::string();
    });
  for (const auto& name : arguments)
    add(name, [&](const Run& run) {
      return run.arguments && run.arguments->contains(name) ? value_text((*run.arguments)[name], 40)
                                                            : std::string();
    });
  return rows;
}

/// Prints the rows with as many runs side by side as fit, and the remaining runs below.
std::string side_by_side(const std::vector<Row>& rows) {
  const auto width_of = [&](std::size_t column) {
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, etude::detail::columns_of(row[column]) + 2);
    return width;
  };
  constexpr int usual = 110;
  const auto room = static_cast<std::size_t>(etude::detail::terminal_columns(stdout).value_or(usual));
  std::string text;
  for (std::size_t begin = 1; begin < rows.front().size();) {
    auto end = begin + 1;
    for (auto width = width_of(0) + width_of(begin);
         end < rows.front().size() && width + width_of(end) <= room; ++end)
      width += width_of(end);
    std::vector<Row> part;
    for (const auto& row : rows) {
      part.push_back({row[0]});
      part.back().insert(part.back().end(), row.begin() + static_cast<std::ptrdiff_t>(begin),
                         row.begin() + static_cast<std::ptrdiff_t>(end));
    }
    std::string alignment("l");
    alignment.append(end - begin, 'r');
    if (!text.empty()) text += '\n';
    text += table(part, alignment);
    begin = end;
  }
  return text;
}

}  // namespace

int compare(const CompareOptions& options) {
  std::vector<Run> runs;
  for (const auto& path : options.runs) runs.push_back(read_run(without_slash(path)));
  const auto arguments = differing_arguments(runs);
  if (options.json) {
    auto list = Json::array();
    for (const auto& run : runs) list.push_back(run_json(run, arguments));
    print_json({{"runs", std::move(list)}, {"differing_arguments", arguments}});
  } else {
    print(side_by_side(rows_of(runs, arguments)));
  }
  return success;
}

}  // namespace tool
