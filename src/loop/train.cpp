#include "train.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "compatibility.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/loop/same_data.hpp"
#include "etude/loop/several_optimizers.hpp"
#include "etude/optim/create.hpp"
#include "etude/trainer_control.hpp"
#include "evaluate.hpp"
#include "metric_check.hpp"

namespace etude::inline v0 {

TrainOutput TrainLoop::run(const TrainOptions& options) {
  prepare(options);
  return finish_after([&] {
    begin();
    run_phases();
  });
}

TrainOutput TrainLoop::finish_after(detail::FunctionRef<void()> run_part) {
  TrainOutput output;
  part([&] {
    run_part();
    output = finish();
  });
  if (const int signal = SignalGuard::came()) end_by(signal);  // too late to interrupt
  return output;
}

void TrainLoop::part(detail::FunctionRef<void()> run_part) {
  try {
    run_part();
  } catch (const Interrupted& interrupted) {
    end_interrupted(interrupted);
    end_by(interrupted.signal);
  } catch (...) {
    in_steps_.reset();
    if (core_.finds_batch_size(std::current_exception())) {
      events_.close_to(outside_);
      core_.control = {};
      throw;
    }
    core_.ranks.leave(std::current_exception());
    std::optional<SafePoint> now;
    if (core_.args.save_on_exception) events_.attempt([&] { now = work_.at_exception(); });
    events_.report(std::current_exception());
    events_.attempt([&] { work_.save_after_exception(now); });
    end_early();
    throw;
  }
}

void TrainLoop::prepare(const TrainOptions& options) {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::setup);
  events_.check_trackers();
  check_eval_datasets(core_);
  if (core_.options.model_init && core_.trained_before) core_.make_model();
  core_.trained_before = true;
  checkpoints_.find(options.resume_from_checkpoint);
  core_.train_dataloader.reset();
  if (events_.hears<AccumulationPlanned>())
    core_.accumulation.vary([&events = events_](std::int64_t epoch) {
      auto& core = events.core();
      auto steps = core.args.gradient_accumulation_steps;
      stop_later(core.control, [&] {
        steps = events.raise<AccumulationPlanned>(epoch, steps)->gradient_accumulation_steps;
      });
      return steps;
    });
  plan_phases(checkpoints_.done_phases());
  enter_planned_phase();
  core_.begin_training();
  core_.warn_of_unsaved_state();
  if (checkpoints_.resumes()) checkpoints_.load_training(plan_, later_steps());
  begin_trial(options.trial);
  core_.share_model();
  set_plan();
  summary_.begin();
  core_.model.train(true);
  if (phases_->are_given()) {
    core_.optimizers.clear();
    check_later_phases();
  }
  make_optimizers();
  if (is_stepped_) update_.keep_loss();
  if (checkpoints_.resumes()) checkpoints_.load_rest();
  core_.optimizers.zero_grad();
  check_metric_names(events_);
  core_.log_window.start_clock(core_.state.num_input_tokens_seen);
  signals_.emplace(core_.args.enable_jit_checkpoint && !core_.is_quiet);
  outside_ = events_.depth();
  end_of_units_.emplace(core_);
}

void TrainLoop::plan_phases(const DonePhases& done) {
  phases_.emplace(core_);
  if (is_stepped_ && phases_->are_given())
    throw ArgumentError("phases is set: must not be in a training whose batches or losses a program gives");
  if (!phases_->begin_with(done.names))
    throw ArgumentError(fmt::format(
        "phases is [{}]: must begin with those that the checkpoint {} has done, and have more: [{}]",
        fmt::join(phases_->names(), ", "), checkpoints_.path().string(), fmt::join(done.names, ", ")));
  auto first_epoch = done.epochs;
  for (auto phase = done.names.size(); phase < phases_->size(); ++phase) {
    phases_->enter(phase);
    Planned planned{.phase = phase};
    if (is_stepped_) {
      planned.plan = plan_stepped_training(core_.args, static_cast<bool>(core_.options.lr_scheduler));
    } else {
      planned.loader = made_by("get_train_dataloader", events_.trainer().get_train_dataloader());
      stop_later(core_.control, [&] { announce_loader(events_, *planned.loader, LoaderUse::train); });
      check_same_data(core_, planned.loader.get());
      planned.plan = plan_training(core_.args, core_.ranks.most(planned.loader->size()),
                                   core_.accumulation.by_epoch(first_epoch));
    }
    first_epoch += planned.plan.num_train_epochs;
    planned_.push_back(std::move(planned));
  }
}

void TrainLoop::enter_planned_phase() {
  auto planned = std::move(planned_.front());
  planned_.pop_front();
  phase_ = planned.phase;
  phases_->enter(phase_);
  plan_ = planned.plan;
  core_.train_dataloader = std::move(planned.loader);
}

std::int64_t TrainLoop::later_steps() const {
  return std::accumulate(planned_.begin(), planned_.end(), std::int64_t{0},
                         [](auto sum, const auto& later) { return sum + later.plan.max_steps; });
}

void TrainLoop::set_plan() {
  auto whole = plan_;
  whole.max_steps += later_steps();
  for (const auto& later : planned_) whole.num_train_epochs += later.plan.num_train_epochs;
  whole.num_train_epochs = std::min(whole.num_train_epochs, detail::most_steps);
  const auto& done = core_.progress.done_phases;
  auto of_phase = plan_;
  of_phase.max_steps -= done.steps;
  of_phase.num_train_epochs -= done.epochs;
  core_.set_plan(of_phase, whole);
}

void TrainLoop::check_later_phases() {
  for (const auto& later : planned_) {
    phases_->enter(later.phase);
    try {
      if (!core_.options.optimizers.empty()) {
        detail::follow_freezing_rules(core_.args, core_.model.named_parameters(),
                                      core_.options.parameter_groups);
      } else if (!core_.overrides.create_optimizer && !core_.options.optimizer) {
        core_.optimizers.add({"", core_.make_optimizer()});
        check_optimizers(core_, core_);
        if (!core_.options.lr_scheduler)
          etude::make_scheduler(core_.args, *core_.optimizers.current(), later.plan.max_steps);
      }
      CompiledStep::check(events_);  // after the rules have frozen parameters
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("phase '{}': {}", phases_->name(later.phase), error.what()));
    }
    core_.optimizers.clear();
  }
  phases_->enter(phase_);
}

void TrainLoop::make_optimizers() {
  if (core_.optimizers.empty() && !core_.options.optimizers.empty()) detail::make_optimizers(core_, core_);
  if (core_.optimizers.empty())
    core_.optimizers.add({"", made_by("create_optimizer", events_.trainer().create_optimizer())});
  check_optimizers(core_, core_);
  const auto planned_steps = core_.run_config.max_num_train_steps + skipped_of_plan();
  if (core_.options.optimizers.empty())
    core_.optimizers[0].lr_scheduler =
        made_by("create_scheduler", events_.trainer().create_scheduler(planned_steps));
  else
    detail::make_schedulers(core_, core_.run_config, core_.optimizers, planned_steps);
  check_model(events_);
  update_.begin_training();
}

void TrainLoop::begin() {
  core_.optimizers.use_weights(WeightsInUse::training);
  events_.open<TrainEnd>();
  if (checkpoints_.resumes()) stoppable([&] { events_.raise<CheckpointLoaded>(checkpoints_.path()); });
  stoppable([&] { events_.raise<TrainBegin>(checkpoints_.resumes()); });
  requests_.agree();
  open_phase(checkpoints_.resumes());
  if (checkpoints_.resumes()) {
    stoppable([&] { checkpoints_.begun(); });
    requests_.agree();
  }
  work_.begin_reentry();
  enter();
}

bool TrainLoop::has_epoch() const {
  return loop_state().stage == TrainingStage::epochs &&
         core_.progress.position.epoch < plan_.num_train_epochs &&
         (loop_state().epoch_is_open() || !stop_is_due());
}

void TrainLoop::open_epoch(detail::FunctionRef<void()> steps) {
  // If the epoch's steps were done when the checkpoint was written, only its end is left.
  epoch_had_ended_ = loop_state().epoch_has_ended() && (core_.progress.position.exhausted || stop_is_due());
  events_.open<TrainingRunEpochEnd>();
  if (!epoch_had_ended_) events_.open<EpochEnd>();
  stoppable([&] {
    begin_epoch();
    if (epoch_had_ended_) return;
    begin_steps();
    steps();
  });
}

void TrainLoop::close_epoch() {
  auto& position = core_.progress.position;
  in_steps_.reset();
  if (!epoch_had_ended_) {
    const auto rest = core_.batches_left();
    if (core_.control.should_epoch_stop || (rest && *rest == 0)) position.exhausted = true;
    if (loop_state().epoch != EpochStage::epoch_end) loop_state().enter(EpochStage::epoch_end);
    stoppable([&] { events_.leave<EpochEnd>(position.exhausted); });
    requests_.agree();
  }
  if (loop_state().epoch == EpochStage::epoch_end) stoppable([&] { requests_.honour(); });
  stoppable([&] { events_.leave<TrainingRunEpochEnd>(position.exhausted); });
  requests_.agree();
  epoch_was_stopped_ = std::exchange(core_.control.should_epoch_stop, false);
  if (!position.exhausted) return;
  position = {.epoch = position.epoch + 1, .dataset_state = position.dataset_state};
  loop_state().enter(EpochStage::between);
  extend_epochs();
}

bool TrainLoop::may_step() {
  const auto goes_on = [&] { return !core_.stopping() && core_.state.global_step < plan_.max_steps; };
  if (core_.remote.is_paused() && goes_on()) {
    core_.remote.wait_while_paused([] { return SignalGuard::came() != 0; });
    core_.ranks.throw_if_interrupted();
  }
  // Several processes agree on a cancellation after the step.
  if (!core_.ranks.several()) core_.remote.take_cancel(core_.control);
  return goes_on();
}

bool TrainLoop::run_group(BatchSource& batches) {
  const ActivityClock::Step step(core_.activity_clock, core_.state.global_step + 1);
  switch (update_.run(batches, examples_)) {
    case UpdateResult::no_batches:
      if (core_.progress.position.examples == 0) core_.control.request_stop("train_dataset gave no batches");
      work_.forget_group();
      core_.progress.position.exhausted = true;
      core_.progress.position.dataset_state = batches.dataset_state();
      return false;
    case UpdateResult::given_up:
      return false;
    case UpdateResult::skipped:
      summary_.add_examples(core_.padded(update_.size()));
      skip_step();
      return true;
    case UpdateResult::done:
      summary_.add_examples(core_.padded(update_.size()));
      end_step();
      return true;
  }
  return false;
}

void TrainLoop::complete_update() {
  const ActivityClock::Step step(core_.activity_clock, core_.state.global_step + 1);
  const auto result = update_.complete(examples_);
  summary_.add_examples(core_.padded(update_.size()));
  result == UpdateResult::done ? end_step() : skip_step();
}

void TrainLoop::stoppable(detail::FunctionRef<void()> part) {
  const auto outside = events_.depth();
  try {
    part();
  } catch (const StopTraining& stop) {
    if (core_.ranks.several() && !core_.ranks.stop_is_agreed)
      throw Error(
          fmt::format("{} (StopTraining stops one process of several only from a callback, or "
                      "from the model and the loss in a training step)",
                      stop.what()));
    events_.close_to(outside);
    work_.give_up();
    core_.control.request_stop(stop.what());
  }
}

bool TrainLoop::stop_is_due() const {
  return core_.control.should_training_stop || core_.state.global_step >= plan_.max_steps;
}

std::string TrainLoop::stop_reason() const {
  const auto& given = core_.control.stop_reason;
  return given.empty() ? "a callback set should_training_stop" : given;
}

void TrainLoop::abandon() {
  in_steps_.reset();
  events_.attempt([&] {
    core_.ranks.leave(std::make_exception_ptr(Error("the trainer was destroyed before finish()")));
  });
  end_early();
}

void TrainLoop::begin_trial(const std::optional<HyperparameterTrial>& trial) {
  core_.state.is_hyper_param_search = trial.has_value();
  core_.state.trial_name = trial ? std::optional(trial->name) : std::nullopt;
  core_.state.trial_params = trial ? trial->params : nullptr;
  if (trial) requests_.prune_by(trial->prune);
}

void TrainLoop::enter() {
  if (!loop_state().has_started()) {
    stoppable([&] { requests_.evaluate_at_start(); });
    requests_.agree();
  }
  const bool ends = core_.control.should_training_stop || core_.state.global_step >= core_.state.max_steps;
  if (!loop_state().is_at_end() || ends) return;
  const bool is_pending = loop_state().stage == TrainingStage::finishing;
  if (is_pending && !loop_state().epoch_is_open()) stoppable([&] { requests_.honour(); });
  loop_state().continue_training();
}

void TrainLoop::open_phase(bool is_resumed) {
  if (!phases_->are_given()) return;
  events_.open<PhaseEnd>();
  stoppable([&] {
    events_.raise<PhaseBegin>(phases_->name(phase_), static_cast<std::int64_t>(phase_), is_resumed);
  });
  requests_.agree();
}

void TrainLoop::close_phase() {
  if (!phases_->are_given()) return;
  stoppable([&] { events_.leave<PhaseEnd>(phase_is_done()); });
  requests_.agree();
}

bool TrainLoop::phase_is_done() const {
  return core_.state.global_step >= plan_.max_steps ||
         core_.progress.position.epoch >= plan_.num_train_epochs;
}

void TrainLoop::run_phases() {
  for (;;) {
    run_epochs();
    close_phase();
    if (planned_.empty() || core_.control.should_training_stop || !phase_is_done()) return;
    enter_next_phase();
    open_phase(/*is_resumed=*/false);
  }
}

void TrainLoop::enter_next_phase() {
  auto& progress = core_.progress;
  auto& position = progress.position;
  if (loop_state().epoch_is_open()) {
    position = {.epoch = position.epoch + 1, .dataset_state = position.dataset_state};
    loop_state().enter(EpochStage::between);
  }
  auto& done = progress.done_phases;
  done.names.emplace_back(phases_->name(phase_));
  done.steps = core_.state.global_step;
  done.epochs = position.epoch;
  done.skipped_steps = progress.skipped_steps;
  progress.extra_steps = progress.extra_epochs = 0;
  core_.optimizers.use_weights(WeightsInUse::result);
  gather_units();
  update_.end_training();
  enter_planned_phase();
  if (!phases_->continues_data(phase_)) position.dataset_state = nullptr;
  plan_ = after(progress.done_phases, plan_);
  progress.train_dataset = core_.train_dataset_info();
  set_plan();
  core_.optimizers.clear();
  make_optimizers();
  core_.optimizers.zero_grad();
}

void TrainLoop::run_epochs() {
  while (has_epoch()) {
    open_epoch([&] { run_steps(); });
    close_epoch();
    if (stop_is_due()) break;  // Only the end is left, and it handles a signal.
    core_.ranks.throw_if_interrupted();
  }
}

void TrainLoop::begin_epoch() {
  const bool is_resumed = work_.reenters_epoch();
  if (!loop_state().epoch_is_open()) core_.carried.reset();
  events_.raise<EpochBegin>(is_resumed);
  requests_.agree();
  if (!loop_state().epoch_is_open()) loop_state().enter(EpochStage::begun);
  if (is_resumed) work_.enter_epoch();
}

void TrainLoop::begin_steps() {
  const auto& position = core_.progress.position;
  core_.accumulation.begin_epoch(position.epoch);
  const auto left = core_.batches_left();
  examples_ = left ? static_cast<double>(position.padded_examples) + core_.padded(*left)
              : plan_.batches_per_epoch > 0 ? core_.padded(plan_.batches_per_epoch)
                                            : std::numeric_limits<double>::infinity();
  if (loop_state().epoch == EpochStage::epoch_end) requests_.honour();
  in_steps_.emplace(core_.activity, Activity::steps);
  if (loop_state().epoch == EpochStage::step_end) requests_.honour();
  if (loop_state().epoch != EpochStage::steps) loop_state().enter(EpochStage::steps);
}

void TrainLoop::run_steps() {
  const ActivityClock::Scope between_steps(core_.activity_clock, TimedActivity::data, /*is_shown=*/false);
  LoadedBatches batches(core_.begin_batches());
  const ScopedValue<const BatchStream*> under_way(core_.batches, &batches.stream());
  checkpoints_.settle_program_state();  // reading the data up to the position may change it
  while (may_step() && run_group(batches)) {
  }
  core_.ask_dataset_state();
  leave_steps();
}

void TrainLoop::end_step() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::update, /*is_shown=*/false);
  loop_state().enter(EpochStage::step_end);
  work_.end();
  events_.raise<StepEnd>();
  requests_.agree();
  requests_.honour();
  checkpoints_.poll();
  core_.ranks.throw_if_interrupted();
}

void TrainLoop::skip_step() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::update, /*is_shown=*/false);
  if (core_.args.max_steps <= 0 && plan_.max_steps > 1 && !is_stepped_) {
    --plan_.max_steps;
    --core_.state.max_steps;
    --core_.progress.extra_steps;
  }
  work_.end();
  events_.raise<StepSkipped>();
  requests_.agree();
  core_.ranks.throw_if_interrupted();
}

void TrainLoop::extend_epochs() {
  const bool is_last = core_.progress.position.epoch == plan_.num_train_epochs;
  if (!is_last || core_.args.max_steps <= 0 || skipped_steps() == 0 || stop_is_due()) return;
  ++plan_.num_train_epochs;
  ++core_.state.num_train_epochs;
  ++core_.progress.extra_epochs;
}

TrainOutput TrainLoop::finish() {
  work_.finish_reentry();
  const bool early = core_.state.global_step < core_.state.max_steps;
  const bool was_at_end = loop_state().is_at_end();
  if (loop_state().stage != TrainingStage::finishing) loop_state().enter(TrainingStage::finishing);
  auto& reason = core_.control.stop_reason;
  if (early) {
    if (reason.empty())
      reason = core_.control.should_training_stop ? stop_reason()
               : epoch_was_stopped_               ? "a callback set should_epoch_stop in the last epoch"
               : core_.state.global_step == 0 && core_.progress.skipped_steps > 0
                   ? (core_.scaler ? "the gradients of all updates overflowed in fp16"
                                   : "the gradients of no update were finite")
               : is_stepped_ ? "finish() was called"
                             : "train_dataset has no more batches";
    if (!was_at_end) stoppable([&] { events_.raise<Stop>(reason); });
    requests_.agree();
  }
  // First honours the requests since the last step, then those made meanwhile or before a stop.
  for (int i = 0; i < 2; ++i) stoppable([&] { requests_.honour(); });
  checkpoints_.announce();
  loop_state().enter(TrainingStage::done);
  core_.optimizers.use_weights(WeightsInUse::result);
  gather_units();
  TrainOutput output;
  output.stop_reason = early ? reason : "";
  stoppable([&] { summary_.log(); });
  if (core_.args.load_best_model_at_end) stoppable([&] { checkpoints_.load_best(); });
  stoppable([&] { events_.leave<TrainEnd>(); });
  if (checkpoints_.has_news()) events_.trainer().save_state();
  output.global_step = core_.state.global_step;
  output.metrics = summary_.metrics();
  if (output.metrics.contains("train_loss")) output.training_loss = output.metrics.at("train_loss");
  core_.control = {};
  return output;
}

void TrainLoop::gather_units() {
  if (core_.sharded_units) core_.sharded_units->gather();
  core_.sharded_units.reset();
}

void TrainLoop::end_early() {
  // After an error, the other processes, which have shares of a divided average, may have left.
  if (!core_.ranks.has_left() || !core_.shard_stage)
    events_.attempt([&] { core_.optimizers.use_weights(WeightsInUse::result); });
  events_.close_to(outside_ + 1);
  events_.attempt([&] { summary_.log(); });
  events_.attempt([&] { checkpoints_.announce(); });
  events_.close_to(outside_);
  core_.control = {};
}

void TrainLoop::end_interrupted(const Interrupted& interrupted) {
  in_steps_.reset();
  events_.attempt([&] { work_.save_after(interrupted); });
  events_.attempt([&] { events_.raise<Stop>(interrupted.what()); });
  end_early();
}

[[noreturn]] void TrainLoop::end_by(int signal) {
  core_.activity_clock.finish();
  core_.checkpoint_writer.unlock();
  signals_->restore_with_others(signal);
  throw Interrupted(signal);
}

}  // namespace etude::inline v0
