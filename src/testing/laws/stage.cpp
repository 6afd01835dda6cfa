#include "etude/testing/laws/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "etude/libtorch/generators.hpp"
#include "etude/model/model.hpp"
#include "etude/testing/laws/compare.hpp"
#include "etude/testing/laws/problem.hpp"
#include "etude/trainer_control.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0::laws::detail {

void Stage::before(const Context& e, std::string_view event) {
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

void Stage::behind(const Context& e, std::string_view event) {
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
      run.breaches.push_back(fmt::format("the weights are not restored at {}: {}", event, *changed));
  }
  disturb(e, event, false);
}

void Stage::behind(const Save& e) {
  if (keep.empty()) return;
  const auto copy = keep / fmt::format("{}", run.kept.size());
  if (e.state.is_world_process_zero)
    std::filesystem::copy(e.checkpoint.parent_path(), copy, std::filesystem::copy_options::recursive);
  run.kept.emplace_back(e.state.global_step, copy / e.checkpoint.filename());
}

void Stage::disturb(const Context& e, std::string_view event, bool before) {
  if (disturbance.way == Disturbance::Way::none || event != disturbance.event ||
      before != disturbance.before || ++seen_ != disturbance.nth)
    return;
  run.disturbed = true;
  if (disturbance.way == Disturbance::Way::throws) throw Disruption("thrown by the laws of callbacks");
  if (disturbance.way == Disturbance::Way::throws_stop) throw StopTraining("thrown by the laws of callbacks");
  e.control.request_stop("requested by the laws of callbacks");
}

void Stage::forward(bool is_training) {
  const auto event =
      is_training ? "the model's forward in a training step" : "the model's forward in an evaluation";
  if (disturbance.way == Disturbance::Way::none || event != disturbance.event || ++seen_ != disturbance.nth)
    return;
  run.disturbed = true;
  throw Disruption("thrown by the model of the laws");
}

void Stage::begin(const Disturbance& next) {
  disturbance = next;
  run = {};
  seen_ = 0;
  evaluations_.clear();
}

}  // namespace etude::inline v0::laws::detail
