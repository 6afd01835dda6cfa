#pragma once

#include <torch/types.h>

#include <algorithm>
#include <boost/hana/for_each.hpp>
#include <concepts>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
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

namespace etude {

/// Puts back what an evaluation that isn't to count may have changed: generators, buffers of the model,
/// pending logs, and what a `compute_metrics` holds by value.
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

/// Whether only an evaluation can say that it has the metric of that name: one is planned, it isn't the loss,
/// no evaluation before has had it, and all datasets have an index.
bool is_metric_unsure(const TrainerCore& core, const std::string& name);

/// The same of `metric_for_best_model`, if a person has chosen it.
bool is_best_metric_unsure(const TrainerCore& core);

/// Throws MetricError if `callback` waits for a metric that the evaluations, whose metrics are `found`, don't
/// have. Those of another prefix aren't known here.
void check_watched(std::string_view callback, const std::string& name, const Metrics& found);

/// Finds a mistyped `metric_for_best_model` before the first step, and so a metric that a callback waits for
/// and names by a method `std::string watched_metric() const`.
template <class Trainer>
class MetricCheck {
 public:
  /// Throws MetricError, which lists the metrics that there are, where an evaluation doesn't give those that
  /// were asked for: the first batch of each dataset is evaluated, no event is raised, and everything is
  /// as it was afterwards. Does nothing where that says nothing, since callbacks may add metrics.
  static void run(Trainer& trainer) {
    auto& core = trainer.core_;
    const bool best_is_unsure = is_best_metric_unsure(core);
    if (!(best_is_unsure || watches_unsure(trainer)) || may_add_metrics(trainer)) return;
    Metrics found;
    try {
      const DryRun dry_run(core);
      found = EvaluationLoop<Trainer>::first_batches(trainer);
    } catch (const std::exception&) {
      return;  // One batch may be too few for a metric, and the evaluation itself will tell.
    }
    if (best_is_unsure) best_metric(core.args, found);
    for_each_watched(trainer, [&](std::string_view callback, const std::string& name) {
      if (is_metric_unsure(core, name)) check_watched(callback, name, found);
    });
  }

 private:
  template <class Visit>
  static void for_each_watched(Trainer& trainer, Visit visit) {
    boost::hana::for_each(trainer.handler_.callbacks(), [&]<class Callback>(const Callback& callback) {
      if constexpr (requires {
                      { callback.watched_metric() } -> std::same_as<std::string>;
                    })
        if (const auto name = callback.watched_metric(); !name.empty())
          visit(short_type_name<Callback>(), name);
    });
  }

  static bool watches_unsure(Trainer& trainer) {
    bool any = false;
    for_each_watched(trainer, [&](std::string_view, const std::string& name) {
      any = any || is_metric_unsure(trainer.core_, name);
    });
    return any;
  }

  /// A `log` of the trainer's own may add metrics, too.
  template <class Derived>
  static constexpr bool logs_as_base =
      requires { requires std::same_as<decltype(&Derived::log), decltype(&Trainer::log)>; };

  static bool may_add_metrics(Trainer& trainer) {
    using Derived = std::remove_reference_t<decltype(trainer.derived())>;
    bool may = !logs_as_base<Derived>;
    boost::hana::for_each(trainer.handler_.callbacks(), [&]<class Callback>(Callback& callback) {
      if constexpr (std::same_as<Callback, RuntimeCallbacks>)
        may = may || writes<Log, Evaluate, EvaluateAll>(callback) ||
              hears<EvaluateBegin, PredictionStepBegin, PredictionStep>(callback);
      else
        may = may || Writes<Callback, Log> || Writes<Callback, Evaluate> || Writes<Callback, EvaluateAll> ||
              (!type_name<Callback>().starts_with("etude::") &&
               (Handles<Callback, EvaluateBegin> || Handles<Callback, PredictionStepBegin> ||
                Handles<Callback, PredictionStep>));
    });
    return may;
  }

  template <class... Event>
  static bool hears(RuntimeCallbacks& callbacks) {
    return (!callbacks.template handlers<Event>().empty() || ...);
  }
  template <class... Event>
  static bool writes(RuntimeCallbacks& callbacks) {
    return (
        std::ranges::any_of(callbacks.template handlers<Event>(), [](const auto& h) { return h.second; }) ||
        ...);
  }
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/metric_check.ipp"
#endif
