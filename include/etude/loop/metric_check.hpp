#pragma once

#include <torch/types.h>

#include <algorithm>
#include <boost/hana/unpack.hpp>
#include <concepts>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/evaluate.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// Restores what an evaluation that mustn't count may have changed: generators, the model's buffers, pending
/// logs, and state that a `compute_metrics` holds by value.
class DryRun {
 public:
  explicit DryRun(TrainerCore& core);
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  ~DryRun();

 private:
  TrainerCore& core_;
  RandomState random_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers_;  // each with a copy
  PendingLogs pending_logs_;
  ComputeMetrics compute_metrics_;
};

/// Whether only an evaluation can show that the metric exists: one is planned, it isn't the loss, no previous
/// evaluation has had it, and all datasets have an index.
bool is_metric_unsure(const TrainerCore& core, const std::string& name);

/// The same for `metric_for_best_model`, if the user set it.
bool is_best_metric_unsure(const TrainerCore& core);

/// Throws MetricError if `callback` waits for a metric that isn't in `found`, the metrics of the evaluations.
/// Metrics with another prefix can't be checked here.
void check_watched(std::string_view callback, const std::string& name, const Metrics& found);

namespace detail {

struct WatchedMetric {
  std::string_view callback;
  std::string name;
};

/// Adds the metric that `callback` waits for, if any.
template <class Callback>
void add_watched(const Callback& callback, std::vector<WatchedMetric>& watched) {
  if constexpr (requires {
                  { callback.watched_metric() } -> std::same_as<std::string>;
                })
    if (auto name = callback.watched_metric(); !name.empty())
      watched.push_back({short_type_name<Callback>(), std::move(name)});
}

/// Whether one of these callbacks may change or hear what an evaluation finds.
bool may_add_metrics(const RuntimeCallbacks& callbacks);

template <class Callback>
bool may_add_metrics(const Callback&) {
  return Writes<Callback, Log> || Writes<Callback, Evaluate> || Writes<Callback, EvaluateAll> ||
         (!type_name<Callback>().starts_with("etude::") &&
          (Handles<Callback, EvaluateBegin> || Handles<Callback, PredictionStepBegin> ||
           Handles<Callback, PredictionStep>));
}

}  // namespace detail

/// Detects a mistyped `metric_for_best_model` before the first step, and likewise a metric that a callback
/// waits for and returns from a method `std::string watched_metric() const`.
template <class Events>
class MetricCheck {
 public:
  /// Throws MetricError, listing the available metrics, if an evaluation lacks a requested one: the first
  /// batch of each dataset is evaluated without events, and everything is restored afterwards. Does nothing
  /// if that would prove nothing, since callbacks may add metrics.
  static void run(Events& events) {
    auto& core = events.core();
    const bool best_is_unsure = is_best_metric_unsure(core);
    if (!(best_is_unsure || watches_unsure(events)) || may_add_metrics(events)) return;
    Metrics found;
    try {
      const DryRun dry_run(core);
      found = EvaluationLoop<Events>::first_batches(events);
    } catch (const std::exception&) {
      return;  // One batch may be too few for a metric; the evaluation itself will report it.
    }
    if (best_is_unsure) best_metric(core.args, found);
    for (const auto& [callback, name] : watched(events))
      if (is_metric_unsure(core, name)) check_watched(callback, name, found);
  }

 private:
  static std::vector<detail::WatchedMetric> watched(Events& events) {
    std::vector<detail::WatchedMetric> result;
    boost::hana::unpack(events.handler().callbacks(),
                        [&](const auto&... each) { (detail::add_watched(each, result), ...); });
    return result;
  }

  static bool watches_unsure(Events& events) {
    return std::ranges::any_of(watched(events),
                               [&](const auto& each) { return is_metric_unsure(events.core(), each.name); });
  }

  static bool may_add_metrics(Events& events) {
    return events.core().overrides.log ||
           boost::hana::unpack(events.handler().callbacks(),
                               [](const auto&... each) { return (detail::may_add_metrics(each) || ...); });
  }
};

}  // namespace etude::inline v0
