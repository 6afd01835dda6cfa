#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/study/study.hpp"
#include "etude/tune/hyperparameter_search.hpp"

namespace etude::inline v0::detail {

/// An error in the search itself, which every trial would hit.
struct SearchFault : ArgumentError {
  explicit SearchFault(const std::string& text) : ArgumentError(text) {}
};

/// The environment variable that tells a trial's process, as JSON, which trial to run.
inline constexpr const char* trial_variable = "ETUDE_TRIAL";
/// The exit status of such a process after a SearchFault.
inline constexpr int fault_status = 65;

/// The exit status of such a process after a signal that it has handled.
inline constexpr int interrupted_status = 66;

/// The exit status of such a process when the disk is full.
inline constexpr int disk_full_status = 67;

/// The names of the attributes that a search adds to its trials.
inline constexpr const char *run_dir_attr = "run_dir", *checkpoint_attr = "checkpoint",
                            *steps_attr = "global_step", *metrics_attr = "metrics", *error_attr = "error",
                            *restarts_attr = "etude:restarts", *fault_attr = "etude:fault";

/// Journals aren't trusted: attributes of the wrong type are ignored.
inline std::string text_attr(const nlohmann::ordered_json& attrs, const char* name) {
  const auto found = attrs.find(name);
  return found != attrs.end() && found->is_string() ? found->get<std::string>() : "";
}
inline std::string text_attr(const FrozenTrial& trial, const char* name) {
  return text_attr(trial.user_attrs, name);
}
inline std::int64_t number_attr(const nlohmann::ordered_json& attrs, const char* name) {
  const auto found = attrs.is_object() ? attrs.find(name) : attrs.end();
  constexpr std::int64_t most = std::int64_t{1} << 53;
  return found != attrs.end() && found->is_number_integer()
             ? std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, most)
             : 0;
}

/// True if the name can be a direct entry of a folder.
inline bool is_entry_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

/// A search's objective and directions.
class Objective {
 public:
  Objective(const HyperparameterSearchOptions& options, const TrainingArguments& args)
      : compute_(options.compute_objective), args_(normalized(args)), directions_(options.direction) {
    for (const auto each : directions_)
      if (each == StudyDirection::not_set)
        throw ArgumentError("direction has not_set: must be minimize or maximize");
    by_metric_ = args.metric_for_best_model.has_value();
    if (!directions_.empty()) return;
    is_unset_ = true;
    if (compute_)
      throw ArgumentError("direction is unset: must be minimize or maximize with compute_objective");
    const bool is_greater = args.metric_for_best_model && args_.greater_is_better.value_or(false);
    directions_ = {is_greater ? StudyDirection::maximize : StudyDirection::minimize};
  }

  const std::vector<StudyDirection>& directions() const { return directions_; }

  /// Throws SearchFault if the number of values isn't the number of directions, and for a sum of metrics if
  /// no direction was given.
  std::vector<double> of(const Metrics& metrics) const {
    auto values = compute(metrics);
    if (values.size() != directions_.size())
      throw SearchFault(fmt::format("direction has {} values: must have {}, one for each objective",
                                    directions_.size(), values.size()));
    return values;
  }

 private:
  /// By default the sum of the metrics that Hugging Face's default objective sums.
  std::vector<double> compute(const Metrics& metrics) const {
    if (compute_) return compute_(metrics);
    if (by_metric_) return {best_metric(args_, metrics)};
    double sum = 0;
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics) {
      if (name == "eval_loss" || name == "epoch" || is_speed(name)) continue;
      sum += value;
      names.push_back(name);
    }
    if (names.empty()) {
      if (!metrics.contains("eval_loss"))
        throw SearchFault("there is no eval_loss to minimize: compute_objective must be set");
      return {metrics.at("eval_loss")};
    }
    if (is_unset_)
      throw SearchFault(fmt::format(
          "direction is unset: must be minimize or maximize, since the objective is the sum of {}",
          fmt::join(names, ", ")));
    return {sum};
  }

  ComputeObjective compute_;
  TrainingArguments args_;
  std::vector<StudyDirection> directions_;
  bool is_unset_ = false, by_metric_ = false;
};

}  // namespace etude::inline v0::detail
