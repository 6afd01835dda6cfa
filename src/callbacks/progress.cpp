#include "etude/callbacks/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/callbacks/printer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/speed.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The most informative metric of an evaluation other than its loss; empty if there is none.
std::string telling_metric(const Metrics& metrics, const TrainingArguments& args) {
  auto best = best_metric_name(args);
  if (best != "eval_loss" && metrics.contains(best)) return best;
  const auto found = std::ranges::find_if(metrics, [](const auto& entry) {
    const std::string_view name = entry.first;
    return name.starts_with("eval_") && !name.ends_with("_loss") && !is_speed(name);
  });
  return found == metrics.end() ? std::string() : found->first;
}

std::string shown_value(const Metrics& metrics, std::string_view name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::string() : fmt::format("{:.4g}", without_sign_of_nan(found->second));
}

/// The current epoch, as "2/5"; empty if there is only one epoch or no limit.
std::string epoch_text(const TrainerState& state) {
  if (state.num_train_epochs <= 1 || state.num_train_epochs >= most_steps) return {};
  const auto begun = static_cast<std::int64_t>(intervals_in(state.epoch, 1)) + 1;
  return fmt::format("{}/{}", std::min(begun, state.num_train_epochs), state.num_train_epochs);
}

/// Steps from one evaluation to the next; 0 if there is none or it is unknown.
double steps_between_evaluations(const Context& e) {
  if (e.args.eval_strategy == IntervalStrategy::steps) return static_cast<double>(e.state.eval_steps);
  if (e.args.eval_strategy == IntervalStrategy::epoch && e.state.max_steps < most_steps &&
      e.state.num_train_epochs > 0)
    return static_cast<double>(e.state.max_steps) / static_cast<double>(e.state.num_train_epochs);
  return 0;
}

}  // namespace

}  // namespace detail

void ProgressCallback::on(const TrainBegin& e) {
  if (!speaks(e)) return;
  latest_.clear();
  epoch_.clear();
  training_ = std::make_unique<ProgressBar>(
      stderr, "train",
      e.state.max_steps < detail::most_steps ? std::optional(e.state.max_steps) : std::nullopt,
      e.state.global_step);
  training_->expect_pauses(detail::steps_between_evaluations(e));
  show_fields(e);
}

void ProgressCallback::on(const EpochBegin& e) {
  epoch_ = detail::epoch_text(e.state);
  show_fields(e);
}

void ProgressCallback::on(const StepEnd& e) {
  if (training_) training_->update(e.state.global_step);
}

void ProgressCallback::on(const TrainEnd&) {
  if (training_) training_->close();
  training_.reset();
}

void ProgressCallback::on(const EvaluateBegin& e) { begin(e, std::string(e.metric_key_prefix)); }

void ProgressCallback::on(const PredictBegin& e) { begin(e, std::string(e.metric_key_prefix)); }

void ProgressCallback::on(const PredictionStep&) {
  if (prediction_) prediction_->update(++predicted_);
}

void ProgressCallback::on(const EvaluateEnd&) { end(); }

void ProgressCallback::on(const PredictEnd&) { end(); }

void ProgressCallback::on(const Log& e) {
  // Evaluate is too early, because run-time callbacks may still change its metrics.
  show_result(e.logs);
  if (!training_) return;
  latest_.update(e.logs);
  show_fields(e);
  detail::print_logs(e);
}

void ProgressCallback::show_fields(const Context& e) {
  if (!training_) return;
  const auto metric = detail::telling_metric(latest_, e.args);
  const auto processes = e.args.world_size();
  training_->set_fields({{"loss", detail::shown_value(latest_, "loss")},
                         {"epoch", epoch_},
                         {metric, detail::shown_value(latest_, metric)},
                         {"eval_loss", detail::shown_value(latest_, "eval_loss")},
                         {"lr", detail::shown_value(latest_, "learning_rate")},
                         {"", processes > 1 ? fmt::format("{} processes", processes) : std::string()}});
}

void ProgressCallback::begin(const Context& e, std::string title) {
  if (!speaks(e)) return;
  if (training_) training_->pause();
  predicted_ = 0;
  prediction_ = std::make_unique<ProgressBar>(stderr, std::move(title), e.eval_dataloader->size());
}

/// Leaves the last line of an evaluation outside a training on the screen, with its result.
void ProgressCallback::show_result(const Metrics& metrics) {
  if (!prediction_ || training_) return;
  ProgressBar::Fields fields;
  for (const auto& [name, value] : metrics)
    if (!is_speed(name) && name != "epoch") fields.emplace_back(name, detail::shown_value(metrics, name));
  prediction_->set_fields(std::move(fields));
}

void ProgressCallback::end() {
  if (prediction_ && !training_) prediction_->close();
  prediction_.reset();
  if (training_) training_->resume();
}

}  // namespace etude::inline v0
