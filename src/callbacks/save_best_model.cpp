#include "etude/callbacks/save_best_model.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

void SaveBestModelCallback::on(const TrainBegin& e) {
  if (e.trainer.options().eval_dataset.empty())
    throw ArgumentError("eval_dataset is not set: SaveBestModelCallback needs evaluations");
  if (load_saved_checkpoint && e.args.load_best_model_at_end)
    throw ArgumentError(
        "load_saved_checkpoint and load_best_model_at_end: only one can go into the model at the end");
  folder = save_path.empty() ? (std::filesystem::path(e.args.output_dir) / "best_model").string()
                             : std::filesystem::absolute(save_path).string();
  const BestModelFolder best(folder);
  best.check("save_path");
  const bool is_new = e.state.log_history.empty() && e.state.global_step == 0;
  state.watched.begin(e, is_new, "SaveBestModelCallback");
  if (is_new) {
    if (!reset_on_train) return;
  } else if (state.best_metric) {
    const auto info = best.info();
    has_saved = info && info->metric == watch_metric && info->value == state.best_metric &&
                info->global_step == state.best_global_step;
    if (has_saved) return;
    message(e.args, LogLevel::warning,
            "{} doesn't contain the best model that this run saved at step {}: starting over",
            best.path().string(), state.best_global_step);
  }
  has_saved = false;
  state.best_metric.reset();
}

void SaveBestModelCallback::on(const EvaluateAll& e) {
  if (!state.watched.counts(e, count_intermediate)) return;
  const auto value = state.watched.look(watch_metric, e.metrics);
  if (!value ||
      !is_better(*value, state.best_metric, is_greater_better(e.args, watch_metric, greater_is_better)))
    return;
  if (e.state.is_world_process_zero)
    BestModelFolder(folder).write(e, e.model.state_dict(),
                                  {.metric = watch_metric,
                                   .value = *value,
                                   .global_step = e.state.global_step,
                                   .epoch = e.state.epoch});
  has_saved = true;
  state.best_metric = value;
  state.best_global_step = e.state.global_step;
  state.best_metric_epoch = e.state.epoch;
}

void SaveBestModelCallback::on(const TrainEnd& e) {
  if (!state.watched.end()) return;
  state.watched.throw_if_missing(watch_metric);
  if (!load_saved_checkpoint) return;
  if (!has_saved) {
    message(e.args, LogLevel::warning, "no best model to load: {}",
            state.watched.found ? fmt::format("{} was never a finite number", watch_metric)
                                : "no evaluation counts");
    return;
  }
  e.model.load_state_dict(BestModelFolder(folder).weights());
  message(e.args, LogLevel::info, "loaded the model with {} {} of epoch {:.2f}", watch_metric,
          *state.best_metric, state.best_metric_epoch);
}

}  // namespace etude::inline v0
