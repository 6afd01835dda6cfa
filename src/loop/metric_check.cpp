#include "etude/loop/metric_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/loop/core.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

DryRun::DryRun(TrainerCore& core)
    : core_(core),
      random_(random_state(core.options.generators)),
      pending_logs_(core.pending_logs),
      compute_metrics_(core.options.compute_metrics) {
  for (const auto& [name, buffer] : core.model.named_buffers())
    buffers_.emplace_back(buffer, buffer.detach().clone());
}

DryRun::~DryRun() {
  core_.options.compute_metrics = std::move(compute_metrics_);
  core_.pending_logs = std::move(pending_logs_);
  load_random_state(random_, core_.options.generators);
  const torch::NoGradGuard no_grad;
  for (auto& [buffer, copy] : buffers_)
    if (buffer.sizes() == copy.sizes() && buffer.scalar_type() == copy.scalar_type())
      buffer.copy_(copy);
    else
      buffer.set_data(copy);
}

bool is_metric_unsure(const TrainerCore& core, const std::string& name) {
  const auto& datasets = core.options.eval_dataset;
  if (core.args.eval_strategy == IntervalStrategy::no && !core.args.eval_on_start) return false;
  if (datasets.empty() || (name == "eval_loss" && !datasets.named())) return false;
  if (std::ranges::any_of(core.state.log_history, [&](const auto& line) { return line.contains(name); }))
    return false;
  return std::ranges::all_of(datasets, [](const auto& dataset) { return dataset.second.is_indexed(); });
}

bool is_best_metric_unsure(const TrainerCore& core) {
  return core.options.args.metric_for_best_model && !core.state.best_metric &&
         is_metric_unsure(core, best_metric_name(core.args));
}

bool detail::may_add_metrics(const RuntimeCallbacks& callbacks) {
  const std::array rows{handling_of(callbacks, events<>{})};
  for (const auto& each : handled_events(known_events(events<Log, Evaluate, EvaluateAll>{}), rows))
    if (std::ranges::any_of(each.callbacks, [](const auto& handler) { return handler.second; })) return true;
  return !handled_events(known_events(events<EvaluateBegin, PredictionStepBegin, PredictionStep>{}), rows)
              .empty();
}

void check_watched(std::string_view callback, const std::string& name, const Metrics& found) {
  if (found.contains(name) || !(name.starts_with("eval_") || found.contains("eval_" + name))) return;
  const auto known = names_to_offer(found);
  throw MetricError(fmt::format("watch_metric of {} is '{}', and no evaluation has it: must be one of {}{}",
                                callback, name, fmt::join(known, ", "), did_you_mean(name, known)));
}

}  // namespace etude::inline v0
