#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/error.hpp"
#include "etude/linkage.hpp"
#include "etude/message.hpp"
#include "etude/model.hpp"

namespace etude {

ETUDE_INLINE void SaveBestModelCallback::on(const TrainBegin& e) {
  if (e.trainer.options().eval_dataset.empty())
    throw ArgumentError("eval_dataset is not set: SaveBestModelCallback needs evaluations");
  if (load_saved_checkpoint && e.args.load_best_model_at_end)
    throw ArgumentError(
        "load_saved_checkpoint and load_best_model_at_end: only one can go into the model at the end");
  folder = save_path.empty() ? (std::filesystem::path(e.args.output_dir) / "best_model").string() : save_path;
  const BestModelFolder best(folder);
  best.check("save_path");
  is_running = true;
  has_failed = false;
  const bool is_new = e.state.log_history.empty() && e.state.global_step == 0;
  if (is_new) {
    found_metric = false;
    other_metrics.clear();
    if (!reset_on_train) return;
  } else if (best_metric) {
    const auto facts = best.facts();
    has_saved = facts && facts->metric == watch_metric && facts->value == best_metric &&
                facts->global_step == best_global_step;
    if (has_saved) return;
    message(e.args, LogLevel::warning,
            "{} has not the best model that this run had saved, of step {}: it is looked for anew",
            best.path().string(), best_global_step);
  }
  has_saved = false;
  best_metric.reset();
}

ETUDE_INLINE void SaveBestModelCallback::on(const EvaluateAll& e) {
  if (!is_running) return;
  const auto found = e.metrics.find(watch_metric);
  if (found == e.metrics.end()) {
    std::vector<std::string_view> names;
    for (const auto& entry : e.metrics) names.push_back(entry.first);
    other_metrics = fmt::format("{}", fmt::join(names, ", "));
    return;
  }
  found_metric = true;
  if (!is_better(found->second, best_metric, greater_is_better)) return;
  if (e.state.is_world_process_zero)
    BestModelFolder(folder).write(e, e.model.state_dict(),
                                  {.metric = watch_metric,
                                   .value = found->second,
                                   .global_step = e.state.global_step,
                                   .epoch = e.state.epoch});
  has_saved = true;
  best_metric = found->second;
  best_global_step = e.state.global_step;
  best_metric_epoch = e.state.epoch;
}

ETUDE_INLINE void SaveBestModelCallback::on(const TrainEnd& e) {
  if (!std::exchange(is_running, false) || has_failed) return;
  throw_if_missing();
  if (!load_saved_checkpoint) return;
  if (!has_saved) {
    message(
        e.args, LogLevel::warning, "there is no best model to load: {}",
        found_metric ? fmt::format("{} was never a finite number", watch_metric) : "there was no evaluation");
    return;
  }
  e.model.load_state_dict(BestModelFolder(folder).weights());
  message(e.args, LogLevel::info, "loaded the model with {} {} of epoch {:.2f}", watch_metric, *best_metric,
          best_metric_epoch);
}

ETUDE_INLINE void SaveBestModelCallback::throw_if_missing() const {
  if (!found_metric && !other_metrics.empty())
    throw MetricError(fmt::format("watch_metric is '{}', and no evaluation has it: must be one of {}",
                                  watch_metric, other_metrics));
}

}  // namespace etude
