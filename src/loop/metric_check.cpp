#include "metric_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/nearest.hpp"
#include "evaluate.hpp"

namespace etude::inline v0 {

namespace {

/// Whether only an evaluation can show that the metric exists: one is planned, it isn't the loss, no previous
/// evaluation has had it, and all datasets have an index.
bool is_metric_unsure(const RunSettings& run, const TrainerState& state, const std::string& name) {
  const auto& datasets = run.options.eval_dataset;
  if (run.args.eval_strategy == IntervalStrategy::no && !run.args.eval_on_start) return false;
  if (datasets.empty() || (name == "eval_loss" && !datasets.named())) return false;
  if (std::ranges::any_of(state.log_history, [&](const auto& line) { return line.contains(name); }))
    return false;
  return std::ranges::all_of(datasets, [](const auto& dataset) { return dataset.second.is_indexed(); });
}

/// The same for `metric_for_best_model`, if the user set it.
bool is_best_metric_unsure(const RunSettings& run, const TrainerState& state) {
  return run.options.args.metric_for_best_model && !state.best_metric &&
         is_metric_unsure(run, state, best_metric_name(run.args));
}

/// Throws MetricError if `callback` waits for a metric that isn't in `found`, the metrics of the evaluations.
/// Metrics with another prefix can't be checked here.
void check_required(std::string_view callback, const std::string& name, const Metrics& found) {
  if (found.contains(name) || !(name.starts_with("eval_") || found.contains("eval_" + name))) return;
  const auto known = names_to_offer(found);
  throw MetricError(fmt::format("watch_metric of {} is '{}', and no evaluation has it: must be one of {}{}",
                                callback, name, fmt::join(known, ", "), did_you_mean(name, known)));
}

}  // namespace

void check_metric_names(EventSource& events) {
  auto& core = events.core();
  const bool best_is_unsure = is_best_metric_unsure(core, core.state);
  const auto required = events.required_metrics();
  const auto is_unsure = [&](const auto& each) { return is_metric_unsure(core, core.state, each.name); };
  if (!(best_is_unsure || std::ranges::any_of(required, is_unsure)) || events.may_add_metrics()) return;
  Metrics found;
  try {
    const SnapshotScope<part::Buffers, part::Generators, part::Logs, part::MetricState> begin(events);
    found = evaluate_first_batches(events);
  } catch (const std::exception&) {
    return;  // One batch may be too few for a metric; the evaluation itself will report it.
  }
  if (best_is_unsure) best_metric(core.args, found);
  for (const auto& [callback, name] : required)
    if (is_metric_unsure(core, core.state, name)) check_required(callback, name, found);
}

}  // namespace etude::inline v0
