#pragma once

#include <array>
#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/callback.hpp"
#include "etude/callbacks/device_memory.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/file_logger.hpp"
#include "etude/callbacks/gradual_unfreezing.hpp"
#include "etude/callbacks/learning_rate_monitor.hpp"
#include "etude/callbacks/limit_batches.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/mixup.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/callbacks/norm_monitor.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/callbacks/profiler.hpp"
#include "etude/callbacks/report.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/callbacks/throughput.hpp"
#include "etude/callbacks/timer.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/callbacks/underflow_overflow.hpp"
#include "etude/callbacks/wsd_checkpoint.hpp"
#include "etude/data/mixing.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// The callbacks that `add_named_callbacks` knows.
using KnownCallbacks =
    callbacks<CSVLoggerCallback, CutMix, DebugUnderflowOverflowCallback, DeviceMemoryMonitor,
              EarlyStoppingCallback, GradientNormMonitor, GradualUnfreezingCallback, JSONLinesLoggerCallback,
              LearningRateMonitor, LimitBatchesCallback, LimitEvalStepsCallback, LossSpikeCallback, MixUp,
              ModelEmaCallback, ModelSummaryCallback, ParameterNormMonitor, PredictionsToCSVCallback,
              ProfilerCallback, ReportCallback, SaveBestModelCallback, StepBasedEvaluationCallback,
              StochasticWeightAveragingCallback, TerminateOnNaNCallback, ThroughputMonitor, TimerCallback,
              TopKCheckpointsCallback, WSDCheckpointCallback>;

namespace detail {

/// The name of a callback, and its options as a JSON object.
struct NamedCallback {
  std::string name;
  nlohmann::json options;
};

/// Parses "EarlyStoppingCallback: early_stopping_patience=3, early_stopping_threshold=0.1", which may have
/// been split at its commas. Throws ArgumentError.
std::vector<NamedCallback> parse_callbacks(const std::vector<std::string>& words);

[[noreturn]] void throw_no_option(const NamedCallback& callback, std::string_view option,
                                  const std::vector<std::string_view>& known);
[[noreturn]] void throw_wrong_options(const NamedCallback& callback, const ArgumentError& error);

template <class Options>
Options options_of(const NamedCallback& callback) {
  std::vector<std::string> unknown;
  Options options;
  try {
    options = from_json_value<Options>(callback.options, &unknown);
    if (unknown.empty()) check_fields(options);
  } catch (const ArgumentError& error) {
    throw_wrong_options(callback, error);
  }
  if (!unknown.empty()) {
    const auto names = field_names<Options>();
    throw_no_option(callback, unknown.front(), {names.begin(), names.end()});
  }
  return options;
}

template <class Callback, class Trainer>
bool add_if_named(Trainer& trainer, const NamedCallback& named) {
  if (named.name != short_type_name<Callback>()) return false;
  if constexpr (ReflectedStruct<Callback>) {
    trainer.add_callback(options_of<Callback>(named));
  } else if constexpr (std::constructible_from<Callback, MixingOptions>) {
    trainer.add_callback(Callback(options_of<MixingOptions>(named)));
  } else {
    if (!named.options.empty()) throw_no_option(named, named.options.items().begin().key(), {});
    trainer.add_callback(Callback());
  }
  return true;
}

[[noreturn]] void throw_no_callback(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace detail

/// Adds callbacks by their names to a trainer that has RuntimeCallbacks. Each text is the name of one of
/// KnownCallbacks, perhaps with options: "EarlyStoppingCallback: early_stopping_patience=3". Texts that were
/// split at commas are joined: one with an equals sign but no colon is a further option of the callback
/// before it. Throws ArgumentError for an unknown name, an unknown option, or a value that isn't allowed.
template <class Trainer>
void add_named_callbacks(Trainer& trainer, const std::vector<std::string>& texts) {
  const auto add = [&]<class... Known>(const detail::NamedCallback& named, callbacks<Known...>) {
    if (!(detail::add_if_named<Known>(trainer, named) || ...))
      detail::throw_no_callback(named.name, {short_type_name<Known>()...});
  };
  for (const auto& named : detail::parse_callbacks(texts)) add(named, KnownCallbacks());
}

}  // namespace etude::inline v0
