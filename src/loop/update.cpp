#include "update.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "compatibility.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/sharded_parameters.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/loop/trainer_methods.hpp"

namespace etude::inline v0 {

UpdateResult Update::run(BatchSource& source, double examples) {
  using enum GradientsResult;
  begin();

  // With several processes, an exception is kept until all know of it, since the others wait for this one's
  // messages.
  Attempt own(core_);
  own.run([&] { return batches_.fetch(source) == 0 ? no_batches : complete; });
  if (core_.ranks.several()) meet_others(own);
  if (own.result() == complete) own.run([&] { return add_gradients() ? complete : given_up; });
  const auto result = core_.ranks.several() ? reduce(own) : own.result();
  size_ = static_cast<std::int64_t>(batches_.size());
  if (result == no_batches) return UpdateResult::no_batches;
  if (!core_.ranks.several() && core_.unknown_divisor.matters()) core_.warn_of_unknown_divisor();
  if (result == given_up) return UpdateResult::given_up;

  return conclude(core_.position_after(source.position(), source.dataset_state(), size_), examples);
}

UpdateResult Update::conclude(const DataPosition& next, double examples) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::update);
  make_steps();
  const bool has_stepped = steps_.has_stepped();
  steps_.finish();
  const auto epochs_done = static_cast<double>(core_.progress.position.epoch);
  advance(next, epochs_done + static_cast<double>(next.padded_examples) / examples, has_stepped);
  return has_stepped ? UpdateResult::done : UpdateResult::skipped;
}

void Update::begin() {
  work_.begin_group();
  steps_.begin();
  strategy_->begin();
  is_captured_ = false;
}

/// Called before the backward passes: exchanges the values that the gradients need from other processes.
void Update::meet_others(Attempt& own) {
  waited_ = core_.ranks.communicator().waited();
  if (core_.brings_own_batches() && batches_.join_others() > 0 && !own.error())
    own.run([] { return GradientsResult::complete; });
  if (is_on_one_path()) detail::check_same_path(core_.ranks, core_, own.result(), own.error());
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::communication);
  batches_.share_divisors();
  if (core_.args.ddp_broadcast_buffers) core_.share_buffers();
}

/// The forward and backward passes; false if callbacks have stopped them.
bool Update::add_gradients() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::forward);
  const OptimizerList::Turn turn(core_.optimizers, strategy_->first_turn());
  events_.raise<StepBegin>();
  steps_.begin_gradients();
  const bool is_resumed = work_.enter_group();
  if (!is_resumed) core_.group.forget_losses();
  is_captured_ = graph_ && !is_resumed && batches_.size() == 1;
  if (is_captured_) return true;  // `make_steps` does it all
  return core_.args.auto_microbatching ? run_parts_that_fit() : run_micro_batches();
}

bool Update::run_parts_that_fit() {
  for (;;) {
    const SnapshotScope<part::LogsAside> logs(events_);
    try {
      return run_micro_batches();
    } catch (...) {
      if (!core_.part_size.shrink(std::current_exception(), batches_.largest())) throw;
    }  // The exception and whatever it holds are released only after its handler.
    core_.pending_logs = {};
    core_.work_begin->restore();
    core_.group.forget_losses();
    core_.progress.position.micro_batches = 0;
    core_.optimizers.zero_grad();
    events_.raise<StepRestarted>();
  }
}

bool Update::run_micro_batches() {
  auto& position = core_.progress.position;
  for (auto i = static_cast<std::size_t>(position.micro_batches); i < batches_.size(); ++i) {
    const bool is_last = i + 1 == batches_.size();
    batches_.enter(i);
    strategy_->begin_backward(is_last);
    run_micro_batch(batches_[i]);
    if (is_last) break;
    if (const auto* reducer = strategy_->reducer(); reducer && reducer->sums_every_backward()) {
      const auto all = finish_gradients(GradientsResult::complete);
      if (all.count(GradientsResult::complete) < core_.ranks.world_size()) {
        abandoned_ = all;
        return true;
      }
    }
    events_.raise<SubstepEnd>();
    if (core_.sharded_units) core_.ranks.agree(core_.control);  // all go on, or none
    if (!strategy_->stops_between_batches()) continue;
    if (core_.stopping()) {
      position.micro_batches = 0;
      core_.optimizers.zero_grad();
      core_.return_carried();
      return false;
    }
    position.micro_batches = static_cast<std::int64_t>(i + 1);
    if (core_.may_interrupt_groups()) throw_if_interrupted();
  }
  return true;
}

void Update::run_micro_batch(Batch& batch) {
  if (!core_.args.auto_microbatching) return run_part(batch);
  batch.check_divisible("auto_microbatching divides batches, and ");
  // Passes the batch in parts, even if there is only one, so that it stays intact for another attempt.
  core_.group.in_parts(batch, core_.part_size.of(batch.size), [&](Batch& part) {
    if (part.size < batch.size) core_.group.set_part_divisor(core_.loss_divisor(part.labels));
    run_part(part);
  });
}

void Update::run_part(Batch& given) {
  Batch copy;  // for the handlers of ForwardBegin, if the batch is used again
  auto& batch = strategy_->repeats_batches() ? copy = given : given;
  if (auto event = events_.raise<ForwardBegin>(std::move(batch))) batch = std::move(event->batch);
  core_.group.add_loss(with_place(
      [&] { return strategy_->loss_of(batch); },
      [&] { return place_of(core_.model, fmt::format("step {}", core_.state.global_step + 1), batch); }));
}

/// Adds up the gradients of all processes, and returns what all of them agree on.
GradientsResult Update::reduce(const Attempt& own) {
  using enum GradientsResult;
  core_.group.settle();
  if (is_on_one_path() && own.error()) detail::leave_path(core_, own.error());
  if (own.result() != complete) core_.optimizers.zero_grad();
  const auto all = abandoned_ ? *std::exchange(abandoned_, std::nullopt) : finish_gradients(own.result());
  core_.log_window.add_wait(core_.ranks.communicator().waited() - waited_);
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
  if (all.count(no_batches) > 0) check_may_lack_batches(all);
  core_.group.tokens = static_cast<std::int64_t>(all.sums[0]);
  core_.group.floating_point_ops = all.sums[1];
  if (all.sums[2] > 0) core_.warn_of_unknown_divisor();
  if (own.result() == no_batches) {  // joins the others' step
    events_.raise<StepBegin>();
    steps_.begin_gradients();
  }
  return complete;
}

GradientsResults Update::finish_gradients(GradientsResult result) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::communication);
  return strategy_->reducer()->finish(
      result,
      {static_cast<double>(core_.group.tokens), core_.group.floating_point_ops,
       core_.unknown_divisor.matters() ? 1.0 : 0.0},
      !core_.args.ddp_find_unused_parameters);
}

void Update::check_may_lack_batches(const GradientsResults& all) const {
  const auto without = all.count(GradientsResult::no_batches);
  if (!core_.brings_own_batches())
    throw DataError(
        fmt::format("train_dataset has no more batches in {} of {} processes: must be the same in all, since "
                    "each takes its part of every batch; declare data that is divided already by "
                    "etude::already_divided(dataset)",
                    without, core_.ranks.world_size()));
  if (strategy_->reducer()->sums_every_backward())
    throw DataError(
        fmt::format("train_dataset has no more batches in {} of {} processes: with "
                    "ShardedDataParallel<2>, all must have as many",
                    without, core_.ranks.world_size()));
}

void Update::make_steps() {
  if (is_captured_)
    make_captured_step();
  else
    strategy_->make_steps([&] { add_gradients_in_turn(); });
}

void Update::add_gradients_in_turn() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::forward);
  steps_.begin_gradients();
  Attempt own(core_);
  own.run([&] {
    if (!batches_.empty()) run_micro_batches();
    return GradientsResult::complete;
  });
  if (!core_.ranks.several()) return;
  const auto all = strategy_->reducer()->finish(own.result(), {},
                                                !core_.args.ddp_find_unused_parameters && !batches_.empty());
  if (all.count(GradientsResult::complete) < core_.ranks.world_size()) own.rethrow_stop();
}

/// Advances the training past the update.
void Update::advance(const DataPosition& next, double epoch, bool has_stepped) {
  if (has_stepped) {
    for (const auto& loss : core_.group.losses())
      core_.log_window.add_loss(loss, core_.state.global_step + 1);
    ++core_.state.global_step;
    if (targets_) targets_->move_targets(core_.state.global_step);
  } else {
    ++core_.progress.skipped_steps;
  }
  if (keeps_loss_) loss_ = core_.group.loss();
  core_.group.forget_losses();
  batches_.clear();
  core_.state.epoch = epoch;
  core_.state.num_input_tokens_seen += core_.group.tokens;
  core_.state.total_flos += core_.group.floating_point_ops;
  core_.progress.position = next;
  core_.updating = false;
}

void Update::take_losses() {
  check_given_losses(events_);
  core_.losses_are_given = true;
  make_strategy(StepSharing::by_program);
}

void Update::remember() {
  work_.begin_group();
  steps_.begin_gradients();
  // The program's next forward pass uses the first process's buffers.
  if (core_.ranks.several() && core_.args.ddp_broadcast_buffers) core_.share_buffers();
}

void Update::begin_losses() {
  if (work_.forget_half_done()) remember();
  steps_.begin();
  strategy_->begin();
  is_captured_ = false;
  size_ = core_.accumulation.steps();
  core_.group.begin(size_);
  core_.group.set_batch(1.0 / static_cast<double>(core_.ranks.world_size()));
  core_.group.forget_losses();
  events_.raise<BatchFetchBegin>();
  events_.raise<StepBegin>();
}

void Update::add_loss(const LossOutput& computed, std::optional<std::size_t> optimizer) {
  Batch batch;  // The program doesn't pass on its tensors.
  batch.size = core_.args.per_device_train_batch_size;
  events_.raise<ForwardBegin>(batch);
  log_parts(core_, computed);
  if (optimizer && core_.optimizers.size() > 1)
    log_parts(core_, {.loss = computed.loss,
                      .counts_items = computed.counts_items,
                      .logs = {{core_.optimizers[*optimizer].key("loss"), computed.loss.detach()}}});
  core_.group.add_loss(detail::backward_pass(
      events_, batch, computed.outputs, core_.group.share_of(computed.loss), core_.group.share(), optimizer));
}

void Update::add_loss_of(Batch batch) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::forward);
  batch = batch.to(core_.device, /*non_blocking=*/true);
  events_.raise<ForwardBegin>(batch);
  with_place(
      [&] {
        auto computed = detail::compute_loss_in_precision(events_, batch, std::nullopt);
        log_parts(core_, computed);
        core_.loss_check.before_backward(computed.loss, batch);
        core_.group.add_loss(detail::backward_pass(events_, batch, std::move(computed.outputs),
                                                   core_.group.share_of(computed.loss), core_.group.share()));
      },
      [&] { return place_of(core_.model, fmt::format("step {}", core_.state.global_step + 1), batch); });
}

void Update::make_step(std::size_t optimizer) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::update);
  strategy_->step_early(optimizer);
}

UpdateResult Update::complete(double examples) {
  const auto position = core_.progress.position.examples + size_ * core_.total_train_batch_size();
  return conclude(core_.position_after(std::min(position, detail::largest_dataset), nullptr, size_),
                  examples);
}

void Update::begin_training() {
  core_.losses_are_given = false;
  core_.compiled_step.begin_training(events_);
  const bool has_shares = core_.ranks.several() && core_.shard_stage == ShardStage::parameters;
  targets_ = std::dynamic_pointer_cast<ModulesImpl>(core_.model.module());
  if (targets_ && !targets_->has_targets()) targets_ = nullptr;
  if (core_.shard_stage) detail::shard_optimizers(core_, core_);
  if (core_.args.offload_optimizer) core_.offload_moments();
  if (core_.args.cuda_graph) {
    check_events_in_graph();
    graph_.emplace(core_.device, core_.model, *core_.optimizers.current());
  }
  if (core_.args.gradient_checkpointing && !has_shares)
    core_.recomputed_units = std::make_unique<RecomputedUnits>(core_.model);
  if (has_shares)
    core_.sharded_units =
        std::make_unique<ShardedUnits>(core_.model, parameters(), core_.args.gradient_checkpointing);
  make_strategy(core_.step_sharing());
}

void Update::check_events_in_graph() const {
  const auto handled = events_.handlers_of(events<ForwardBegin, BackwardBegin, BackwardEnd, GradientsComplete,
                                                  GradientsClipped, PreOptimizerStep>{});
  if (handled.empty()) return;
  throw ArgumentError(fmt::format(
      "cuda_graph is true: must be false with {}, which handles {}, an event inside the captured step",
      handled[0].callbacks[0].first, handled[0].event));
}

void Update::make_captured_step() {
  steps_.check_learning_rates();
  check_events_in_graph();  // callbacks may have been added
  core_.group.set_num_items({});
  core_.group.set_divisor({});
  auto& each = core_.optimizers[0];
  const auto replayed = graph_->replayed();
  const auto results = graph_->run(batches_[0], [&](Batch& inputs) {
    core_.group.forget_losses();
    run_part(inputs);
    steps_.clip_and_step(each, nullptr, [](const torch::Tensor&) { return true; });
    return std::vector{core_.group.losses().front(), core_.log_window.grad_norm()};
  });
  if (graph_->replayed() == replayed) return steps_.end_step(each);
  steps_.begin_step(each);
  core_.group.forget_losses();
  core_.group.add_loss(results[0].clone());
  core_.log_window.set_grad_norm(results[1]);
  steps_.end_step(each);
}

void Update::end_training() {
  strategy_.reset();
  core_.recomputed_units.reset();
}

void Update::make_strategy(StepSharing sharing) {
  strategy_.reset();
  strategy_ = StepStrategy::make(sharing, events_, steps_, batches_);
  if (core_.ranks.several()) strategy_->join(parameters());
}

std::vector<FlatParameters*> Update::parameters() const {
  std::vector<FlatParameters*> all;
  for (const auto& each : core_.optimizers) all.push_back(&each.optimizer->flat_parameters());
  return all;
}

}  // namespace etude::inline v0
