#include "update.hpp"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "attempt.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/several_optimizers.hpp"
#include "etude/loop/sharded_parameters.hpp"
#include "etude/loop/trainer_methods.hpp"
#include "etude/model/loss.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

void Update::join_gradients() {
  detail::check_step_sharing(core_);
  sharing_ = core_.step_sharing();
  if (sharing_ == StepSharing::by_hand)
    core_.step_by_hand = [this](std::size_t optimizer) { step_by_hand(optimizer); };
  if (core_.shard_stage) detail::shard_optimizers(core_);
  if (core_.args.offload_optimizer) core_.offload_moments();
  if (core_.args.cuda_graph) captured_step_.begin();
  const bool has_shares = core_.ranks.several() && core_.shard_stage == ShardStage::parameters;
  if (core_.args.gradient_checkpointing && !has_shares)
    core_.recomputed_units = std::make_unique<RecomputedUnits>(core_.model);
  if (!core_.ranks.several()) return;
  std::vector<FlatParameters*> parameters;
  for (const auto& each : core_.optimizers) parameters.push_back(&each.optimizer->flat_parameters());
  if (has_shares)
    core_.sharded_units =
        std::make_unique<ShardedUnits>(core_.model, parameters, core_.args.gradient_checkpointing);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : core_.model.named_parameters()) names.push_back(name);
  const auto add_reducer = [&](std::vector<FlatParameters*> those) {
    reducers_.emplace_back(core_.ranks.communicator(), std::move(those), names,
                           core_.args.ddp_bucket_cap_mb << 20);
  };
  if (sharing_ == StepSharing::together) {
    add_reducer(std::move(parameters));
  } else {
    for (auto* each : parameters) add_reducer({each});
    if (sharing_ == StepSharing::by_hand) add_reducer({});  // for the agreement at the end of a step
  }
  reducer_ = &reducers_.back();
}

GradientsResult Update::run_group(BatchSource& batches, detail::FunctionRef<bool()> resume) {
  using enum GradientsResult;
  steps_.begin();
  non_finite_.begin_step();
  static_cast<void>(turn_of(steps_.first_due()));  // the others may wait for it, whatever happens here
  const auto fetch_group = [&] { return group_.fetch(batches) == 0 ? no_batches : complete; };
  const auto run_group = [&] { return add_gradients(resume) ? complete : given_up; };
  if (!core_.ranks.several()) {
    if (const auto fetched = fetch_group(); fetched != complete) return fetched;
    const auto result = run_group();
    if (core_.unknown_divisor.matters()) core_.warn_of_unknown_divisor();
    return result;
  }
  return run_with_others(fetch_group, run_group);
}

GradientsResults Update::finish_gradients(GradientsResult result) {
  const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::communication);
  return reducer_->finish(result,
                          {static_cast<double>(core_.group.tokens()), core_.group.floating_point_ops(),
                           core_.unknown_divisor.matters() ? 1.0 : 0.0},
                          !core_.args.ddp_find_unused_parameters);
}

GradientsResult Update::run_with_others(detail::FunctionRef<GradientsResult()> fetch_group,
                                        detail::FunctionRef<GradientsResult()> run_group) {
  using enum GradientsResult;
  // Whatever happens here, the other processes wait for these messages.
  Attempt own(core_);
  own.run(fetch_group);
  const double waited = core_.ranks.communicator().waited();
  const bool divides = !core_.brings_own_batches();
  if (!divides && group_.join_others() > 0 && !own.error()) own.run([] { return complete; });
  const bool on_one_path = core_.sharded_units || sharing_ == StepSharing::by_hand;
  if (on_one_path) detail::check_same_path(core_, own.result(), own.error());
  {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::communication);
    group_.share_divisors();
    if (core_.args.ddp_broadcast_buffers) core_.share_buffers();
  }
  if (own.result() == complete) own.run(run_group);
  core_.group.settle();
  if (on_one_path && own.error()) detail::leave_path(core_, own.error());
  if (own.result() != complete) core_.optimizers.zero_grad();
  const auto all = abandoned_ ? *std::exchange(abandoned_, std::nullopt) : finish_gradients(own.result());
  core_.log_window.add_wait(core_.ranks.communicator().waited() - waited);
  if (all.count(out_of_memory) > 0) {
    core_.ranks.memory_is_agreed = true;
    own.rethrow(std::bad_alloc());
  }
  if (all.count(stopped) > 0) {
    core_.ranks.stop_is_agreed = true;
    own.rethrow_stop();
  }
  if (all.count(given_up) > 0) {
    core_.optimizers.zero_grad();
    core_.return_carried();
    core_.ranks.agree(core_.control);
    return given_up;
  }
  if (all.count(no_batches) == core_.ranks.world_size()) return no_batches;
  if (all.count(no_batches) > 0 && divides)
    throw DataError(
        fmt::format("train_dataset has no more batches in {} of {} processes: must be the same in all, since "
                    "each takes its part of every batch; declare data that is divided already by "
                    "etude::already_divided(dataset)",
                    all.count(no_batches), core_.ranks.world_size()));
  if (all.count(no_batches) > 0 && reducer_->sums_every_backward())
    throw DataError(
        fmt::format("train_dataset has no more batches in {} of {} processes: with "
                    "ShardedDataParallel<2>, all must have as many",
                    all.count(no_batches), core_.ranks.world_size()));
  core_.group.set_tokens(static_cast<std::int64_t>(all.sums[0]));
  core_.group.set_floating_point_ops(all.sums[1]);
  if (all.sums[2] > 0) core_.warn_of_unknown_divisor();
  if (own.result() == no_batches) events_.raise<StepBegin>();  // joins the others' step
  return complete;
}

bool Update::add_gradients(detail::FunctionRef<bool()> resume) {
  const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::forward);
  const OptimizerList::Turn turn(core_.optimizers, turn_of(steps_.first_due()));
  events_.raise<StepBegin>();
  if (non_finite_.is_on()) non_finite_.begin_group();
  const bool is_resumed = resume();
  if (!is_resumed) core_.group.forget_losses();
  is_captured_ = captured_step_ && !is_resumed && group_.size() == 1;
  if (is_captured_) return true;  // `step` does it all
  if (!core_.args.auto_microbatching) return run_micro_batches();
  for (;;) {
    AttemptLogs logs(core_);
    try {
      return run_micro_batches();
    } catch (...) {
      if (!core_.part_size.shrink(std::current_exception(), group_.largest())) throw;
    }  // The exception and whatever it holds are released only after its handler.
    logs.drop();
    core_.group.return_to_begin(core_.options.generators);
    core_.progress.position.micro_batches = 0;
    core_.optimizers.zero_grad();
    events_.raise<StepRestarted>();
  }
}

bool Update::step(const DataPosition& next, double epoch) {
  if (is_captured_) {
    captured_step_.step(group_[0], steps_, [&](Batch& batch) { run_part(batch); });
    return finish_step(next, epoch);
  }
  switch (sharing_) {
    case StepSharing::together:
      for (std::size_t i = 0; i < core_.optimizers.size(); ++i)
        if (steps_.is_due(i)) make_step(i, closure_of(i));
      break;
    case StepSharing::in_turn:
      step_in_turn();
      break;
    case StepSharing::by_hand:
      check_stepped_by_hand();
      break;
  }
  if (!steps_.has_stepped()) {
    steps_.finish();
    ++core_.progress.skipped_steps;
    leave_group(next, epoch);
    return false;
  }
  return finish_step(next, epoch);
}

void Update::make_step(std::size_t optimizer, const Optimizer::Closure& closure) {
  if (non_finite_.has_rejected()) return;
  steps_.step(optimizer, !group_.empty(), closure,
              [&](const torch::Tensor& norm) { return is_accepted(norm); });
}

bool Update::is_accepted(const torch::Tensor& grad_norm) {
  if (!non_finite_.is_on() || non_finite_.accepts(grad_norm)) return true;
  const auto compute_loss = [&](const Batch& batch) {
    auto [loss, outputs, counts_items, logs] =
        detail::compute_loss_in_precision(events_, batch, core_.group.num_items());
    const auto divisor = core_.loss_divisor(batch.labels);
    return divisor && divisor->read() == 0 ? detail::zero_loss(loss, outputs) : loss;
  };
  std::optional<NonFiniteUpdates::ComputeLoss> known_loss;
  if (sharing_ != StepSharing::by_hand) known_loss = compute_loss;
  non_finite_.reject(group_.all(), known_loss);
  return false;
}

std::optional<std::size_t> Update::turn_of(std::size_t optimizer) {
  if (sharing_ != StepSharing::in_turn) return {};
  if (!reducers_.empty()) reducer_ = &reducers_[optimizer];
  return optimizer;
}

void Update::step_in_turn() {
  const auto first = steps_.first_due();
  make_step(first);
  for (auto i = first + 1; i < core_.optimizers.size(); ++i) {
    if (!steps_.is_due(i)) continue;
    if (non_finite_.has_rejected()) break;
    const OptimizerList::Turn turn(core_.optimizers, turn_of(i));
    bool is_complete = true;
    stop_later(core_.control, [&] {
      is_complete = false;
      add_gradients_in_turn();
      is_complete = true;
    });
    if (!is_complete) break;
    make_step(i);
  }
}

void Update::add_gradients_in_turn() {
  const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::forward);
  if (non_finite_.is_on()) non_finite_.begin_group();
  if (!core_.ranks.several()) {
    run_micro_batches();
    return;
  }
  Attempt own(core_);
  own.run([&] {
    if (!group_.empty()) run_micro_batches();
    return GradientsResult::complete;
  });
  const auto all =
      reducer_->finish(own.result(), {}, !core_.args.ddp_find_unused_parameters && !group_.empty());
  if (all.count(GradientsResult::complete) < core_.ranks.world_size()) own.rethrow_stop();
}

void Update::step_by_hand(std::size_t optimizer) {
  if (!is_last_) return;
  if (core_.scaler && core_.optimizers[optimizer].has_stepped)
    throw ArgumentError(fmt::format(
        "fp16 is true: must be false for a training_step that makes several steps of the optimizer '{}'",
        core_.optimizers[optimizer].name));
  if (!reducers_.empty()) reducers_[optimizer].finish();
  make_step(optimizer);
  core_.optimizers[optimizer].optimizer->zero_grad();
}

void Update::check_stepped_by_hand() const {
  if (steps_.has_stepped() || steps_.has_overflowed() || non_finite_.has_rejected() ||
      core_.control.should_training_stop)
    return;
  throw ArgumentError(
      "training_step made no step of an optimizer: must call step() of optimizer(\"...\") in each, since "
      "gradients don't outlast a step; gradient_accumulation_steps accumulates them");
}

bool Update::finish_step(const DataPosition& next, double epoch) {
  steps_.finish();
  non_finite_.end_step();
  for (const auto& loss : core_.group.losses()) core_.log_window.add_loss(loss, core_.state.global_step + 1);
  ++core_.state.global_step;
  leave_group(next, epoch);
  core_.updating = false;
  return true;
}

void Update::leave_group(const DataPosition& next, double epoch) {
  if (keeps_loss_) loss_ = core_.group.loss();
  core_.group.forget_losses();
  core_.group.set_carried_at_begin({});
  group_.clear();
  core_.state.epoch = epoch;
  core_.state.num_input_tokens_seen += core_.group.tokens();
  core_.state.total_flos += core_.group.floating_point_ops();
  core_.progress.position = next;
}

bool Update::run_micro_batches() {
  auto& position = core_.progress.position;
  for (auto i = static_cast<std::size_t>(position.micro_batches); i < group_.size(); ++i) {
    const bool is_last = is_last_ = i + 1 == group_.size();
    group_.enter(i);
    const bool sums_each = reducer_ && reducer_->sums_every_backward();
    // Parts of a batch may have to be run again, so their gradients are sent when all are done.
    if (reducer_ && (is_last || sums_each) && !core_.args.auto_microbatching &&
        sharing_ != StepSharing::by_hand)
      reducer_->begin();
    run_micro_batch(group_[i]);
    if (is_last) break;
    if (sums_each) {
      const auto all = finish_gradients(GradientsResult::complete);
      if (all.count(GradientsResult::complete) < core_.ranks.world_size()) {
        abandoned_ = all;
        return true;
      }
    }
    events_.raise<SubstepEnd>();
    if (core_.sharded_units) core_.ranks.agree(core_.control);  // all go on, or none
    if (sharing_ != StepSharing::together) continue;            // a step of several parts is made as a whole
    if (core_.stopping()) {
      position.micro_batches = 0;
      core_.optimizers.zero_grad();
      core_.return_carried();
      return false;
    }
    position.micro_batches = static_cast<std::int64_t>(i + 1);
    if (!core_.ranks.several()) throw_if_interrupted();
  }
  return true;
}

void Update::run_micro_batch(Batch& batch) {
  if (!core_.args.auto_microbatching) return run_part(batch);
  batch.check_divisible("auto_microbatching divides batches, and ");
  // In parts, even if only one, so that the batch stays intact for another attempt.
  core_.group.in_parts(batch, core_.part_size.of(batch.size), [&](Batch& part) {
    if (part.size < batch.size) core_.group.set_part_divisor(core_.loss_divisor(part.labels));
    run_part(part);
  });
}

void Update::run_part(Batch& given) {
  Batch copy;  // for the handlers of ForwardBegin, if the batch is used again
  auto& batch = sharing_ == StepSharing::in_turn ? copy = given : given;
  if (auto event = events_.raise<ForwardBegin>(std::move(batch))) batch = std::move(event->batch);
  core_.group.add_loss(with_place(
      [&] { return loss_of_step(batch); },
      [&] { return place_of(core_.model, fmt::format("step {}", core_.state.global_step + 1), batch); }));
}

torch::Tensor Update::loss_of_step(Batch& batch) {
  if (sharing_ != StepSharing::by_hand)
    return core_.loss_check.after_step(events_.trainer().training_step(batch));
  torch::Tensor loss;
  core_.unknown_divisor.note_mean();
  const auto run = [&] {
    loss = core_.group.share_of(detail::scalar_loss(events_.trainer().training_step(batch)).detach());
  };
  try {
    run();
  } catch (const StopTraining& stop) {
    if (!steps_.has_stepped()) throw;
    core_.control.request_stop(stop.what());
    loss = torch::zeros({}, core_.device);
  }
  return loss;
}

Optimizer::Closure Update::closure_of(std::size_t optimizer) {
  return core_.optimizers[optimizer].optimizer->needs_closure() ? reevaluation() : nullptr;
}

Optimizer::Closure Update::reevaluation() {
  return [this, first = true]() mutable {
    if (std::exchange(first, false)) return sum(core_.group.losses());
    core_.optimizers.zero_grad();
    core_.return_carried();
    AttemptLogs logs(core_);  // the parts of the loss are those of the first evaluation, as the loss is
    std::vector<torch::Tensor> losses;
    for (std::size_t i = 0; i < group_.size(); ++i) {
      group_.enter(i);
      losses.push_back(core_.loss_check.after_step(events_.trainer().training_step(group_[i])));
    }
    if (reducer_) reducer_->finish();
    logs.drop();
    return sum(losses);
  };
}

torch::Tensor Update::sum(const std::vector<torch::Tensor>& losses) const {
  auto total = losses.empty() ? torch::zeros({}, core_.device) : losses.front();
  for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
  if (!core_.ranks.several()) return total;
  total = total.clone();
  core_.ranks.communicator().sum(total);
  return total;
}

}  // namespace etude::inline v0
