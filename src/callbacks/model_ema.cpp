#include "etude/callbacks/model_ema.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/scoped_value.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/callbacks/watched_metric.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void ModelEmaCallback::on(const CheckpointLoaded& e) {
  if (is_running || !e.args.restore_callback_states_from_checkpoint) return;
  FolderReader reader(e.checkpoint, /*need_manifest=*/false);
  if (reader.has(file))
    loaded = load_safetensors(reader.map(file)).tensors;
  else
    message(e.args, LogLevel::warning, "{} has no {}: the average starts from scratch", e.checkpoint.string(),
            file);
}

void ModelEmaCallback::on(const TrainBegin& e) {
  check(e);
  state.timer.begin(e, update_every_n_steps, "update_every_n_steps");
  is_running = true;
  has_failed = is_evaluating = is_training_evaluation = false;
  weights.emplace(e.model, use_buffers);
  if (!loaded.empty()) {
    weights->load(std::exchange(loaded, {}));
    return;
  }
  state.num_updates = 0;
  state.last_step = e.state.global_step;
  state.best_metric.reset();
}

void ModelEmaCallback::check(const Context& e) const {
  detail::check_fields(*this);
  if (load_at_end && e.args.load_best_model_at_end)
    throw ArgumentError("load_at_end and load_best_model_at_end: only one can go into the model at the end");
  if (save_path.empty()) return;
  BestModelFolder(save_path).check("save_path");
  if (evaluate_during_training && e.trainer.options().eval_dataset.empty())
    throw ArgumentError(
        "save_path is set and eval_dataset is not: set evaluate_during_training to false to keep the last "
        "average");
}

void ModelEmaCallback::update(const Context& e) {
  if (!is_running || e.state.global_step <= state.last_step) return;
  state.last_step = e.state.global_step;
  if (!state.timer.due(e, update_every_n_steps)) return;
  detail::count_up(state.num_updates);
  const auto n = static_cast<double>(state.num_updates - 1);
  weights->update(*e.optimizer, 1 - (warm_up ? std::min(decay, (1 + n) / (10 + n)) : decay));
}

void ModelEmaCallback::on(const EvaluateBegin& e) {
  is_training_evaluation = e.metric_key_prefix == "eval" || e.metric_key_prefix.starts_with("eval_");
}

void ModelEmaCallback::on(const EvaluateAll& e) {
  if (!is_running || is_evaluating || !is_training_evaluation || !evaluate_during_training) return;
  if (e.trainer.options().eval_dataset.empty()) return;
  update(e);
  const ScopedValue evaluating(is_evaluating, true);
  const auto swap = weights->swap_in();
  const auto metrics = e.trainer.evaluate({.metric_key_prefix = "ema_model_eval"});
  if (save_path.empty() || (!count_intermediate && e.is_intermediate)) return;
  const double value = metrics.at(watch_metric);
  if (!is_better(value, state.best_metric, is_greater_better(e.args, watch_metric, greater_is_better)))
    return;
  save(e, value);
  state.best_metric = value;
}

void ModelEmaCallback::on(SaveBegin& e) {
  if (!is_running) return;
  update(e);
  e.tensors.emplace(file, weights->state());
}

void ModelEmaCallback::on(const TrainingRunEpochEnd& e) {
  if (!evaluate_during_training && !save_path.empty() && !has_failed) save(e, std::nullopt);
}

void ModelEmaCallback::on(const TrainEnd&) {
  loaded.clear();
  if (!std::exchange(is_running, false) || has_failed) return;
  if (load_at_end) weights->copy_to_model();
}

std::vector<NamedTensor> ModelEmaCallback::average() const {
  if (!weights) throw Error("ModelEmaCallback has no average before a training");
  return weights->model_state();
}

void ModelEmaCallback::save(const Context& e, std::optional<double> value) const {
  if (!e.state.is_world_process_zero) return;
  BestModelFolder(save_path).write(e, weights->model_state(),
                                   {.metric = value ? watch_metric : "",
                                    .value = value,
                                    .global_step = e.state.global_step,
                                    .epoch = e.state.epoch});
}

}  // namespace etude::inline v0
