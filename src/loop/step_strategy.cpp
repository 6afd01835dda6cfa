#include "step_strategy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "attempt.hpp"
#include "etude/base/error.hpp"
#include "etude/model/loss.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

namespace {

/// One backward pass for all optimizers.
class StepTogether final : public StepStrategy {
 public:
  using StepStrategy::StepStrategy;

  bool stops_between_batches() const override { return true; }

  void make_steps(detail::FunctionRef<void()>) override {
    for (std::size_t i = 0; i < core_.optimizers.size(); ++i)
      if (steps_.is_due(i))
        steps_.step(i, core_.optimizers[i].optimizer->needs_closure() ? reevaluation() : nullptr);
  }

 protected:
  std::vector<std::vector<FlatParameters*>> by_reducer(
      const std::vector<FlatParameters*>& parameters) const override {
    return {parameters};
  }

 private:
  /// Returns the closure of optimizers that evaluate the loss repeatedly. Its first call returns the loss
  /// just computed.
  Optimizer::Closure reevaluation() {
    return [this, first = true]() mutable {
      if (std::exchange(first, false)) return sum(core_.group.losses());
      core_.optimizers.zero_grad();
      core_.return_carried();
      // The logs keep the parts of the loss from the first evaluation, like the loss itself.
      const SnapshotScope<part::LogsAside> logs(events_);
      std::vector<torch::Tensor> losses;
      for (std::size_t i = 0; i < batches_.size(); ++i) {
        batches_.enter(i);
        losses.push_back(loss_of(batches_[i]));
      }
      if (reducer_) reducer_->finish();
      core_.pending_logs = {};
      return sum(losses);
    };
  }

  torch::Tensor sum(const std::vector<torch::Tensor>& losses) const {
    auto total = losses.empty() ? torch::zeros({}, core_.device) : losses.front();
    for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
    if (!core_.ranks.several()) return total;
    total = total.clone();
    core_.ranks.communicator().sum(total);
    return total;
  }
};

/// One backward pass for each optimizer, on its own loss and with the weights already updated.
class StepInTurn final : public StepStrategy {
 public:
  using StepStrategy::StepStrategy;

  void begin() override { enter(steps_.first_due()); }
  std::optional<std::size_t> first_turn() const override { return steps_.first_due(); }
  bool repeats_batches() const override { return true; }

  /// A stop that is requested after the first step takes effect after the steps of all optimizers.
  void make_steps(detail::FunctionRef<void()> add_gradients) override {
    const auto first = steps_.first_due();
    steps_.step(first);
    for (auto i = first + 1; i < core_.optimizers.size(); ++i) {
      if (!steps_.is_due(i)) continue;
      if (steps_.has_rejected()) break;
      enter(i);
      const OptimizerList::Turn turn(core_.optimizers, i);
      bool is_complete = false;
      stop_later(core_.control, [&] {
        add_gradients();
        is_complete = true;
      });
      if (!is_complete) break;
      steps_.step(i);
    }
  }

 private:
  void enter(std::size_t optimizer) {
    if (!reducers_.empty()) reducer_ = &reducers_[optimizer];
  }
};

/// The `training_step` of a trainer calls `step` of an optimizer itself.
class StepByHand final : public StepStrategy {
 public:
  StepByHand(EventSource& events, OptimizerSteps& steps, MicroBatches& batches)
      : StepStrategy(events, steps, batches) {
    core_.step_by_hand = [this](std::size_t optimizer) { step(optimizer); };
  }
  ~StepByHand() override { core_.step_by_hand = nullptr; }

  void begin_backward(bool is_last) override { is_last_ = is_last; }
  bool is_on_one_path() const override { return true; }

  torch::Tensor loss_of(Batch& batch) override {
    core_.unknown_divisor.note_mean();
    try {
      return core_.group.share_of(detail::scalar_loss(events_.trainer().training_step(batch)).detach());
    } catch (const StopTraining& stop) {
      if (!steps_.has_stepped()) throw;
      core_.control.request_stop(stop.what());
      return torch::zeros({}, core_.device);
    }
  }

  /// The `training_step` has already made them.
  void make_steps(detail::FunctionRef<void()>) override {
    if (steps_.has_stepped() || steps_.has_overflowed() || steps_.has_rejected() ||
        core_.control.should_training_stop)
      return;
    throw ArgumentError(
        "training_step made no step of an optimizer: must call step() of optimizer(\"...\") in each, since "
        "gradients don't outlast a step; gradient_accumulation_steps accumulates them");
  }

 private:
  /// Makes a step with the last micro-batch of a group.
  void step(std::size_t optimizer) {
    if (!is_last_) return;
    if (core_.scaler && core_.optimizers[optimizer].has_stepped)
      throw ArgumentError(fmt::format(
          "fp16 is true: must be false for a training_step that makes several steps of the optimizer '{}'",
          core_.optimizers[optimizer].name));
    if (!reducers_.empty()) reducers_[optimizer].finish();
    steps_.step(optimizer);
    core_.optimizers[optimizer].optimizer->zero_grad();
  }

  bool is_last_ = true;

 protected:
  /// Adds a reducer without parameters, for the agreement of the processes at the end of a step.
  std::vector<std::vector<FlatParameters*>> by_reducer(
      const std::vector<FlatParameters*>& parameters) const override {
    auto result = StepStrategy::by_reducer(parameters);
    result.emplace_back();
    return result;
  }
};

/// The program computes the losses, and may make the steps of some optimizers before the others.
class StepByProgram final : public StepStrategy {
 public:
  using StepStrategy::StepStrategy;

  void begin() override { is_done_.assign(core_.optimizers.size(), false); }

  void step_early(std::size_t optimizer) override {
    const auto& each = core_.optimizers[optimizer];
    if (core_.scaler && is_done_[optimizer])
      throw ArgumentError(fmt::format(
          "fp16 is true: must be false for a step with several updates of the optimizer '{}'", each.name));
    if (!make_step(optimizer))
      throw DataError(fmt::format(
          "update(\"{}\") was called, but no loss has given its parameters a gradient", each.name));
    each.optimizer->flat_parameters().zero_grad();  // not the gradients of other optimizers
  }

  void make_steps(detail::FunctionRef<void()>) override {
    for (std::size_t i = 0; i < core_.optimizers.size(); ++i)
      if (!is_done_[i]) make_step(i);
    if (std::ranges::none_of(is_done_, std::identity()))
      throw DataError(
          "no parameter that an optimizer updates has a gradient: the losses given to backward(loss) must "
          "depend on parameters of the trainer's model");
  }

 private:
  /// Returns false, without a step, if the optimizer has no gradients.
  bool make_step(std::size_t i) {
    if (!reducers_.empty()) reducers_[i].finish();
    auto& optimizer = *core_.optimizers[i].optimizer;
    if (!optimizer.has_gradients()) return false;
    is_done_[i] = true;
    steps_.step(i);
    return true;
  }

  std::vector<bool> is_done_;  // in the step under way, even if its gradients weren't accepted
};

}  // namespace

std::unique_ptr<StepStrategy> StepStrategy::make(StepSharing sharing, EventSource& events,
                                                 OptimizerSteps& steps, MicroBatches& batches) {
  switch (sharing) {
    case StepSharing::in_turn:
      return std::make_unique<StepInTurn>(events, steps, batches);
    case StepSharing::by_hand:
      return std::make_unique<StepByHand>(events, steps, batches);
    case StepSharing::by_program:
      return std::make_unique<StepByProgram>(events, steps, batches);
    case StepSharing::together:
      break;
  }
  return std::make_unique<StepTogether>(events, steps, batches);
}

std::vector<std::vector<FlatParameters*>> StepStrategy::by_reducer(
    const std::vector<FlatParameters*>& parameters) const {
  std::vector<std::vector<FlatParameters*>> each;
  for (auto* of_one : parameters) each.push_back({of_one});
  return each;
}

void StepStrategy::join(const std::vector<FlatParameters*>& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : core_.model.named_parameters()) names.push_back(name);
  for (auto& of_one : by_reducer(parameters))
    reducers_.emplace_back(core_.ranks.communicator(), std::move(of_one), names,
                           core_.args.ddp_bucket_cap_mb << 20);
  reducer_ = &reducers_.back();
}

void StepStrategy::begin_backward(bool is_last) {
  // Parts of a batch may have to be run again, so their gradients are sent when all are done.
  if (reducer_ && (is_last || reducer_->sums_every_backward()) && !core_.args.auto_microbatching)
    reducer_->begin();
}

torch::Tensor StepStrategy::loss_of(Batch& batch) {
  return core_.loss_check.after_step(events_.trainer().training_step(batch));
}

}  // namespace etude::inline v0
