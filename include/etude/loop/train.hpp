#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/loop/carried.hpp"
#include "etude/loop/checkpoints.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/evaluate.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/metric_check.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/requests.hpp"
#include "etude/loop/same_data.hpp"
#include "etude/loop/training_summary.hpp"
#include "etude/loop/update.hpp"
#include "etude/loop/work_under_way.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// One training: epochs of update steps, each a group of micro-batches. The order of everything follows
/// Hugging Face's Trainer, except that a request in `control` stays until it is honoured, a stop is checked
/// before work begins, a group that is given up leaves no gradients, and every kind of stop is followed by
/// the last evaluation and checkpoint.
///
/// `run` is the whole of a `train()`. `HostLoop` calls its parts as a program's own loop comes to them.
template <class Events>
class TrainLoop {
 public:
  /// Where the batches come from: `train_dataset`, or a program's own loop.
  enum class Batches { of_dataset, of_host };

  explicit TrainLoop(Events& events, Batches batches = Batches::of_dataset)
      : events_(events), core_(events.core()), is_hosted_(batches == Batches::of_host) {}

  TrainOutput run(const TrainOptions& options) {
    prepare(options);
    return finish_after([&] {
      begin();
      run_epochs();
    });
  }

  /// Runs the last part of a prepared training, and everything after it.
  template <class Part>
  TrainOutput finish_after(Part run_part) {
    auto output = part([&] {
      run_part();
      return finish();
    });
    if (const int signal = SignalGuard::came()) end_by(signal);  // too late to interrupt
    return output;
  }

  /// Runs a part of a prepared training, and ends the training if an exception leaves it.
  template <class Part>
  auto part(Part run_part) {
    try {
      return run_part();
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
      if constexpr (Events::joins_others) core_.ranks.leave(std::current_exception());
      std::optional<AnyTrainingCheckpoints::SafePoint> now;
      events_.attempt([&] { now = checkpoints_.safe_point(); });
      events_.report(std::current_exception());
      events_.attempt([&] { work_.save_after_exception(now); });
      end_early();
      throw;
    }
  }

  /// Makes everything that the training needs, and loads the checkpoint that it resumes from. Raises no event
  /// of its scope; an exception leaves nothing to end.
  void prepare(const TrainOptions& options) {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::setup);
    events_.check_trackers();
    check_eval_datasets(core_);
    if (core_.options.model_init && core_.trained_before) core_.make_model();
    core_.trained_before = true;
    checkpoints_.find(options.resume_from_checkpoint);
    core_.train_dataloader.reset();
    if (!is_hosted_) {
      core_.train_dataloader = made_by("get_train_dataloader", events_.trainer().get_train_dataloader());
      stop_later(core_.control, [&] { announce_loader(events_, *core_.train_dataloader, LoaderUse::train); });
    }
    if constexpr (Events::template is_heard<AccumulationPlanned>())
      core_.accumulation.vary([&events = events_](std::int64_t epoch) {
        auto& core = events.core();
        auto steps = core.args.gradient_accumulation_steps;
        stop_later(core.control, [&] {
          steps = events.raise(AccumulationPlanned{core.context(), epoch, steps}).gradient_accumulation_steps;
        });
        return steps;
      });
    check_same_data(core_);
    plan_ = is_hosted_ ? plan_hosted_training(core_.args, static_cast<bool>(core_.options.lr_scheduler))
                       : plan_training(core_.args, core_.ranks.most(core_.train_dataloader->size()),
                                       core_.accumulation.by_epoch());

    core_.begin_training();
    core_.warn_of_unsaved_state();
    if (checkpoints_.resumes()) checkpoints_.load_training(plan_);
    begin_trial(options.trial);
    core_.share_model();
    core_.set_plan(plan_);
    summary_.begin();
    core_.model.train(true);
    if (core_.optimizers.empty() && !core_.options.optimizers.empty()) detail::make_optimizers(core_);
    if (core_.optimizers.empty())
      core_.optimizers.add({"", made_by("create_optimizer", events_.trainer().create_optimizer())});
    if (core_.args.auto_microbatching && core_.optimizers.current()->needs_closure())
      throw ArgumentError(
          "auto_microbatching is true: must be false with an optimizer that evaluates whole batches "
          "repeatedly");
    if (core_.scaler && core_.optimizers.current()->needs_closure())
      throw ArgumentError(
          fmt::format("fp16 is true: must be false with {}, which evaluates its loss several times per step",
                      core_.optimizers.current()->type()));
    for (const auto& each : core_.optimizers)
      if (core_.args.pure_bf16 && !each.optimizer->rounds_bfloat16())
        throw ArgumentError(fmt::format(
            "pure_bf16 is true: must be false with {}, which doesn't round in its updates: Etude's "
            "AdamW, Adam, SGD and Lion do",
            each.optimizer->type()));
    const auto planned_steps = plan_.max_steps + skipped_of_plan();
    if (core_.options.optimizers.empty())
      core_.optimizers[0].lr_scheduler =
          made_by("create_scheduler", events_.trainer().create_scheduler(planned_steps));
    else
      detail::make_schedulers(core_, planned_steps);
    check_carried_state(core_);
    update_.join_gradients();
    if (is_hosted_) update_.keep_loss();
    if (checkpoints_.resumes()) checkpoints_.load_rest();
    core_.optimizers.zero_grad();
    MetricCheck<Events>::run(events_);
    core_.log_window.start_clock(core_.state.num_input_tokens_seen);
    signals_.emplace(core_.args.enable_jit_checkpoint && !core_.is_quiet);
    outside_ = events_.depth();
    end_of_units_.emplace(core_);
  }

  /// Everything before the first epoch.
  void begin() {
    events_.template open<TrainEnd>();
    if (checkpoints_.resumes())
      stoppable([&] { events_.raise(CheckpointLoaded{core_.context(), checkpoints_.path()}); });
    stoppable([&] { events_.raise(TrainBegin{core_.context(), checkpoints_.resumes()}); });
    requests_.agree();
    if (checkpoints_.resumes()) {
      stoppable([&] { checkpoints_.begun(); });
      requests_.agree();
    }
    work_.begin_reentry();
    enter();
  }

  /// Whether an epoch begins now, or goes on.
  bool has_epoch() const {
    return phase().stage == TrainingStage::epochs && core_.progress.position.epoch < plan_.num_train_epochs &&
           (phase().epoch_is_open() || !stop_is_due());
  }

  /// Opens an epoch, and calls `steps` to run its steps, unless only its end is left.
  template <class Steps>
  void open_epoch(Steps steps) {
    // If the epoch's steps were done when the checkpoint was written, only its end is left.
    epoch_had_ended_ = phase().epoch_has_ended() && (core_.progress.position.exhausted || stop_is_due());
    events_.template open<TrainingRunEpochEnd>();
    if (!epoch_had_ended_) events_.template open<EpochEnd>();
    stoppable([&] {
      begin_epoch();
      if (epoch_had_ended_) return;
      begin_steps();
      steps();
    });
  }

  void close_epoch() {
    auto& position = core_.progress.position;
    in_steps_.reset();
    if (!epoch_had_ended_) {
      const auto rest = core_.batches_left();
      if (core_.control.should_epoch_stop || (rest && *rest == 0)) position.exhausted = true;
      if (phase().epoch != EpochPhase::epoch_end) phase().enter(EpochPhase::epoch_end);
      stoppable([&] { events_.leave(EpochEnd{core_.context(), position.exhausted}); });
      requests_.agree();
    }
    if (phase().epoch == EpochPhase::epoch_end) stoppable([&] { requests_.honour(); });
    stoppable([&] { events_.leave(TrainingRunEpochEnd{core_.context(), position.exhausted}); });
    requests_.agree();
    epoch_was_stopped_ = std::exchange(core_.control.should_epoch_stop, false);
    if (!position.exhausted) return;
    position = {.epoch = position.epoch + 1, .dataset_state = position.dataset_state};
    phase().enter(EpochPhase::between);
    extend_epochs();
  }

  /// Whether another step may begin. Waits while the training is paused.
  bool may_step() {
    const auto goes_on = [&] { return !core_.stopping() && core_.state.global_step < plan_.max_steps; };
    if (core_.remote.is_paused() && goes_on()) {
      core_.remote.wait_while_paused([] { return SignalGuard::came() != 0; });
      core_.ranks.throw_if_interrupted();
    }
    // Several processes agree on it after the step.
    if (!core_.ranks.several()) core_.remote.take_cancel(core_.control);
    return goes_on();
  }

  /// Makes the next update with a group of `batches`. Returns false if the epoch's steps are over.
  template <class Stream>
  bool run_group(Stream& batches) {
    const PhaseClock::Step step(core_.phase_clock, core_.state.global_step + 1);
    auto& position = core_.progress.position;
    work_.begin_group();
    const auto result = update_.run_group(batches, [&] { return work_.enter_group(); });
    if (result == GradientsResult::given_up) return false;
    if (result == GradientsResult::no_batches) {
      if (position.examples == 0) core_.control.request_stop("train_dataset gave no batches");
      work_.forget_group();
      position.exhausted = true;
      position.dataset_state = batches.dataset_state();
      return false;
    }
    const auto next = core_.position_after(batches.position(), batches.dataset_state(), update_.size());
    summary_.add_examples(core_.padded(update_.size()));
    update(next, static_cast<double>(position.epoch) + static_cast<double>(next.padded_examples) / examples_);
    return true;
  }

  /// Runs one part of the training. A `StopTraining` thrown from it closes the open scopes and becomes a
  /// request to stop.
  void stoppable(detail::FunctionRef<void()> part) {
    const auto outside = events_.depth();
    try {
      part();
    } catch (const StopTraining& stop) {
      if constexpr (Events::joins_others)
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

  /// Forgets a group that was given up.
  void leave_steps() { work_.forget_group(); }

  /// The loss of the last group: see `StepOutput`.
  const torch::Tensor& loss() const { return update_.loss(); }

  /// Whether the epoch that is open has only its end left.
  bool epoch_had_ended() const { return epoch_had_ended_; }

  bool stop_is_due() const {
    return core_.control.should_training_stop || core_.state.global_step >= plan_.max_steps;
  }

  /// Why it stops, if a stop was requested.
  std::string stop_reason() const {
    const auto& given = core_.control.stop_reason;
    return given.empty() ? "a callback set should_training_stop" : given;
  }

  /// Ends a training that nobody will finish.
  void abandon() {
    in_steps_.reset();
    if constexpr (Events::joins_others)
      events_.attempt([&] {
        core_.ranks.leave(std::make_exception_ptr(Error("the trainer was destroyed before finish()")));
      });
    end_early();
  }

 private:
  void begin_trial(const std::optional<HyperparameterTrial>& trial) {
    core_.state.is_hyper_param_search = trial.has_value();
    core_.state.trial_name = trial ? std::optional(trial->name) : std::nullopt;
    core_.state.trial_params = trial ? trial->params : nullptr;
    if (trial) requests_.prune_by(trial->prune);
  }

  TrainingPhase& phase() const { return core_.progress.phase; }

  /// Enters the training where it begins or, if it is resumed, where it was.
  void enter() {
    if (!phase().has_started()) {
      stoppable([&] { requests_.evaluate_at_start(); });
      requests_.agree();
    }
    if (!phase().is_at_end() || stop_is_due()) return;
    const bool is_pending = phase().stage == TrainingStage::finishing;
    if (is_pending && !phase().epoch_is_open()) stoppable([&] { requests_.honour(); });
    phase().continue_training();
  }

  void run_epochs() {
    while (has_epoch()) {
      open_epoch([&] { run_steps(); });
      close_epoch();
      if (stop_is_due()) break;  // A signal is handled at the end, which is all that is left.
      core_.ranks.throw_if_interrupted();
    }
  }

  void begin_epoch() {
    const bool is_resumed = work_.reenters_epoch();
    if (!phase().epoch_is_open()) core_.carried.reset();
    events_.raise(EpochBegin{core_.context(), is_resumed});
    requests_.agree();
    if (!phase().epoch_is_open()) phase().enter(EpochPhase::begun);
    if (is_resumed) work_.enter_epoch();
  }

  void begin_steps() {
    const auto& position = core_.progress.position;
    core_.accumulation.begin_epoch(position.epoch);
    const auto left = core_.batches_left();
    examples_ = left ? static_cast<double>(position.padded_examples) + core_.padded(*left)
                : plan_.batches_per_epoch > 0 ? core_.padded(plan_.batches_per_epoch)
                                              : std::numeric_limits<double>::infinity();
    if (phase().epoch == EpochPhase::epoch_end) requests_.honour();
    in_steps_.emplace(core_.in_steps);
    if (phase().epoch == EpochPhase::step_end) requests_.honour();
    if (phase().epoch != EpochPhase::steps) phase().enter(EpochPhase::steps);
  }

  void run_steps() {
    const PhaseClock::Scope between_steps(core_.phase_clock, TimedPhase::data, /*is_shown=*/false);
    auto batches = core_.begin_batches();
    while (may_step() && run_group(batches)) {
    }
    leave_steps();
  }

  void update(const DataPosition& next, double epoch) {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::update);
    if (!update_.step(next, epoch)) return skip();
    phase().enter(EpochPhase::step_end);
    work_.end();
    events_.raise(StepEnd{core_.context()});
    requests_.agree();
    requests_.honour();
    checkpoints_.poll();
    core_.ranks.throw_if_interrupted();
  }

  /// Leaves an update out of the plan, which had one for each group of batches.
  void skip() {
    if (core_.args.max_steps <= 0 && plan_.max_steps > 1 && !is_hosted_) {
      core_.state.max_steps = --plan_.max_steps;
      --core_.progress.extra_steps;
    }
    work_.end();
    events_.raise(StepSkipped{core_.context()});
    requests_.agree();
    core_.ranks.throw_if_interrupted();
  }

  /// The updates that the plan had before they were skipped.
  std::int64_t skipped_of_plan() const { return core_.args.max_steps > 0 ? 0 : core_.progress.skipped_steps; }

  /// An update that was skipped leaves `max_steps` to be reached with more epochs.
  void extend_epochs() {
    const bool is_last = core_.progress.position.epoch == plan_.num_train_epochs;
    if (!is_last || core_.args.max_steps <= 0 || core_.progress.skipped_steps == 0 || stop_is_due()) return;
    core_.state.num_train_epochs = ++plan_.num_train_epochs;
    ++core_.progress.extra_epochs;
  }

  TrainOutput finish() {
    work_.finish_reentry();
    const bool early = core_.state.global_step < plan_.max_steps;
    const bool was_at_end = phase().is_at_end();
    if (phase().stage != TrainingStage::finishing) phase().enter(TrainingStage::finishing);
    auto& reason = core_.control.stop_reason;
    if (early) {
      if (reason.empty())
        reason = core_.control.should_training_stop ? stop_reason()
                 : epoch_was_stopped_               ? "a callback set should_epoch_stop in the last epoch"
                 : core_.state.global_step == 0 && core_.progress.skipped_steps > 0
                     ? (core_.scaler ? "the gradients of all updates overflowed in fp16"
                                     : "the gradients of no update were finite")
                 : is_hosted_ ? "finish() was called"
                              : "train_dataset has no more batches";
      if (!was_at_end) stoppable([&] { events_.raise(Stop{core_.context(), reason}); });
      requests_.agree();
    }
    // First the requests since the last step, then those that came meanwhile or before a stop.
    for (int i = 0; i < 2; ++i) stoppable([&] { requests_.honour(); });
    checkpoints_.announce();
    phase().enter(TrainingStage::done);
    gather_units();
    TrainOutput output;
    output.stop_reason = early ? reason : "";
    stoppable([&] { summary_.log(); });
    if (core_.args.load_best_model_at_end) stoppable([&] { checkpoints_.load_best(); });
    stoppable([&] { events_.template leave<TrainEnd>(); });
    if (checkpoints_.has_news()) events_.trainer().save_state();
    output.global_step = core_.state.global_step;
    output.metrics = summary_.metrics();
    if (output.metrics.contains("train_loss")) output.training_loss = output.metrics.at("train_loss");
    core_.control = {};
    return output;
  }

  /// After the last checkpoint, one process may read or load all parameters without the others.
  void gather_units() {
    if (core_.sharded_units) core_.sharded_units->gather();
    core_.sharded_units.reset();
  }

  /// Cleans up after a training that doesn't reach its end.
  void end_early() {
    events_.close_to(outside_ + 1);
    events_.attempt([&] { summary_.log(); });
    events_.attempt([&] { checkpoints_.announce(); });
    events_.close_to(outside_);
    core_.control = {};
  }

  void end_interrupted(const Interrupted& interrupted) {
    in_steps_.reset();
    events_.attempt([&] { work_.save_after(interrupted); });
    events_.attempt([&] { events_.raise(Stop{core_.context(), interrupted.what()}); });
    end_early();
  }

  /// Ends the process as the signal would have. Returns, by throwing, if the program's own handler for it
  /// returns.
  [[noreturn]] void end_by(int signal) {
    core_.phase_clock.finish();
    core_.checkpoint_writer.unlock();
    signals_->restore_with_others(signal);
    throw Interrupted(signal);
  }

  Events& events_;
  TrainerCore& core_;
  TrainPlan plan_;
  double examples_ = 0;  // of the epoch under way, in full batches
  bool is_hosted_;
  bool epoch_had_ended_ = false;  // before the training was resumed
  bool epoch_was_stopped_ = false;
  TrainingSummary<Events> summary_{events_};
  Update<Events> update_{events_};
  TrainingCheckpoints<Events> checkpoints_{events_};
  WorkUnderWay work_{core_, checkpoints_};
  Requests<Events> requests_{events_, checkpoints_, work_};
  std::size_t outside_ = 0;  // the depth of the events' scopes around the training
  std::optional<RaisedFlag> in_steps_;
  std::optional<SignalGuard> signals_;
  std::optional<detail::EndOfUnits> end_of_units_;
};

}  // namespace etude::inline v0
