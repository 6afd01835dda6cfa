#include "etude/callbacks/watched_metric.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

bool is_better(double value, std::optional<double> best, bool greater_is_better) {
  return std::isfinite(value) && beats(value, best, greater_is_better);
}

bool is_greater_better(const TrainingArguments& args, std::string_view metric, std::optional<bool> given) {
  if (given) return *given;
  return metric.ends_with(args.metric_for_best_model.value_or("loss")) ? is_greater_better(args)
                                                                       : !metric.ends_with("loss");
}

void WatchedMetric::begin(const Context& e, bool is_new, std::string_view callback) {
  if (is_new) *this = {};
  is_running = true;
  has_failed = false;
  if (e.args.eval_strategy != IntervalStrategy::no) return;
  const auto callbacks = e.trainer.callback_names();
  if (std::ranges::find(callbacks, "StepBasedEvaluationCallback") != callbacks.end()) return;
  message(e.args, LogLevel::warning,
          "{} watches evaluations, and eval_strategy is no: set it to epoch or steps, unless one of your "
          "callbacks requests evaluations",
          callback);
}

std::optional<double> WatchedMetric::look(const std::string& name, const Metrics& metrics) {
  const auto metric = metrics.find(name);
  if (metric == metrics.end()) {
    std::vector<std::string_view> names;
    for (const auto& entry : metrics) names.push_back(entry.first);
    others = fmt::format("{}{}", fmt::join(names, ", "), did_you_mean(name, names));
    return {};
  }
  found = true;
  return metric->second;
}

void WatchedMetric::throw_if_missing(const std::string& name, std::string_view option) const {
  if (!found && !others.empty())
    throw MetricError(
        fmt::format("{} is '{}', and no evaluation has it: must be one of {}", option, name, others));
}

}  // namespace etude::inline v0
