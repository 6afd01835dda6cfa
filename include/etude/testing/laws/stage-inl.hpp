#pragma once

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/libtorch/random.hpp"
#include "etude/linkage.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/model.hpp"
#include "etude/reflect/json.hpp"
#include "etude/stop_training.hpp"
#include "etude/testing/laws/compare.hpp"
#include "etude/testing/laws/problem.hpp"
#include "etude/testing/laws/stage.hpp"

namespace etude::laws::detail {

ETUDE_INLINE std::string Disturbance::words() const {
  const auto place =
      event.starts_with("the model's")
          ? std::string(event)
          : fmt::format("{} in {}", before ? "an earlier callback" : "a later callback", event);
  switch (way) {
    case Way::throws:
      return fmt::format("an exception of {}", place);
    case Way::throws_stop:
      return fmt::format("StopTraining thrown by {}", place);
    case Way::asks_to_stop:
      return fmt::format("a stop asked for by {}", place);
    default:
      return "a whole training";
  }
}

ETUDE_INLINE std::string Moment::words() const { return fmt::format("at {} of step {}", event, step); }

ETUDE_INLINE Moment moment_of(const Context& e, std::string_view event) {
  Moment moment{.event = event, .step = e.state.global_step};
  for (const auto& [name, tensor] : e.model.state_dict())
    moment.weights.emplace_back(name, tensor.detach().clone());
  for (const auto& item : e.model.module()->named_modules("model"))
    moment.modes.emplace_back(item.key(), item.value()->is_training());
  moment.random = generator_state(at::globalContext().defaultGenerator(torch::kCPU));
  return moment;
}

ETUDE_INLINE void Stage::before(const Context& e, std::string_view event) {
  if (event == "TrainBegin") {
    if (auto* net = dynamic_cast<NetImpl*>(e.model.module().get())) net->still->eval();
  }
  if (event == "EvaluateBegin" || event == "PredictBegin") evaluations_.push_back(moment_of(e, event));
  if (event == "StepEnd" && e.state.global_step == 2 && inside) {
    const RandomStateGuard random(torch::kCPU);
    std::exchange(inside, nullptr)();
  }
  disturb(e, event, true);
}

ETUDE_INLINE void Stage::behind(const Context& e, std::string_view event) {
  static constexpr std::array recorded{"TrainBegin",  "EpochBegin",    "StepBegin", "ForwardBegin",
                                       "BackwardEnd", "OptimizerStep", "StepEnd",   "EpochEnd"};
  const bool asks = e.control.should_epoch_stop ||
                    (e.control.should_training_stop && e.state.global_step < e.state.max_steps);
  if ((asks || event == "Stop") && !run.asked) run.asked = run.moments.size();
  if (std::ranges::find(recorded, event) != recorded.end()) run.moments.push_back(moment_of(e, event));
  if ((event == "EvaluateEnd" || event == "PredictEnd") && !evaluations_.empty()) {
    const auto begun = std::move(evaluations_.back());
    evaluations_.pop_back();
    if (const auto changed = difference(begun.weights, moment_of(e, event).weights))
      run.breaches.push_back(fmt::format("the weights are not put back at {}: {}", event, *changed));
  }
  disturb(e, event, false);
}

ETUDE_INLINE void Stage::behind(const Save& e) {
  if (keep.empty()) return;
  const auto copy = keep / fmt::format("{}", run.kept.size());
  std::filesystem::copy(e.checkpoint.parent_path(), copy, std::filesystem::copy_options::recursive);
  run.kept.emplace_back(e.state.global_step, copy / e.checkpoint.filename());
}

ETUDE_INLINE void Stage::disturb(const Context& e, std::string_view event, bool before) {
  if (disturbance.way == Disturbance::Way::none || event != disturbance.event ||
      before != disturbance.before || ++seen_ != disturbance.nth)
    return;
  run.disturbed = true;
  if (disturbance.way == Disturbance::Way::throws) throw Disruption("thrown by the laws of callbacks");
  if (disturbance.way == Disturbance::Way::throws_stop) throw StopTraining("thrown by the laws of callbacks");
  e.control.request_stop("asked for by the laws of callbacks");
}

ETUDE_INLINE void Stage::forward(bool is_training) {
  const auto event =
      is_training ? "the model's forward in a training step" : "the model's forward in an evaluation";
  if (disturbance.way == Disturbance::Way::none || event != disturbance.event || ++seen_ != disturbance.nth)
    return;
  run.disturbed = true;
  throw Disruption("thrown by the model of the laws");
}

ETUDE_INLINE void Stage::begin(const Disturbance& next) {
  disturbance = next;
  run = {};
  seen_ = 0;
  evaluations_.clear();
}

ETUDE_INLINE TemporaryFolder::TemporaryFolder() {
  auto name = (std::filesystem::temp_directory_path() / "etude-laws-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw Error(fmt::format("{} can't be made", name));
  path_ = name;
}

ETUDE_INLINE TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ETUDE_INLINE TrainerOptions prepared(const Options& options, const Setting& setting,
                                     const std::shared_ptr<Stage>& stage) {
  std::filesystem::create_directories(setting.folder);
  auto result = problem(setting.folder, setting.saves, [stage](bool training) { stage->forward(training); });
  if (options.prepare) options.prepare(result);
  return result;
}

ETUDE_INLINE Performance::Performance(const Trial& trial, const Options& options, const Setting& setting)
    : setting_(setting), trainer_(prepared(options, setting, stage_), Front{stage_}) {
  for (int i = 0; i < setting.subjects; ++i) subjects_.push_back(trial.add(trainer_, setting.folder));
  trainer_.add_callback(Behind{stage_});
  trainer_.call_event(InitEnd{trainer_.context()});  // which had gone by
}

ETUDE_INLINE Run Performance::train(const Disturbance& disturbance) {
  stage_->begin(disturbance);
  stage_->inside = setting_.inside;
  stage_->keep = setting_.keep;
  std::string error;
  bool came_out = false;
  try {
    trainer_.train({.resume_from_checkpoint = setting_.resume});
  } catch (const Disruption&) {
    came_out = true;
  } catch (...) {
    error = what_of(std::current_exception());
  }
  auto run = std::move(stage_->run);
  run.error = std::move(error);
  run.came_out = came_out;
  run.moments.push_back(moment_of(trainer_.context(), "the end"));
  run.logs = to_json_value(trainer_.state().log_history);
  for (const auto& subject : subjects_) run.states.push_back(subject->state());
  collect_errors(run.breaches);
  replace_folder(run.logs, setting_.folder);
  for (auto& state : run.states) replace_folder(state, setting_.folder);
  return run;
}

ETUDE_INLINE std::vector<std::string> Performance::evaluate() {
  stage_->begin({});
  const auto begun = moment_of(trainer_.context(), "the begin");
  std::string error;
  try {
    trainer_.evaluate();
    trainer_.predict(unlabelled());
  } catch (...) {
    error = what_of(std::current_exception());
  }
  auto breaches = std::move(stage_->run.breaches);
  collect_errors(breaches);
  if (breaches.empty() && !error.empty()) breaches.push_back("it ends with: " + error);
  if (const auto changed = difference(begun, moment_of(trainer_.context(), "the end")))
    breaches.push_back("it changes " + *changed);
  return breaches;
}

ETUDE_INLINE void Performance::collect_errors(std::vector<std::string>& into) {
  for (const auto& subject : subjects_)
    for (auto& error : std::exchange(subject->errors, {})) into.push_back(std::move(error));
}

}  // namespace etude::laws::detail
