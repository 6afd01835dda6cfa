#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/loop/checkpoints.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/evaluate.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/metric_check.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/update.hpp"
#include "etude/loop/work_under_way.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// One `train()`: epochs of update steps, each a group of micro-batches. The order of everything follows
/// Hugging Face's Trainer, except that a request in `control` stays until it is honoured, a stop is checked
/// before work begins, a group that is given up leaves no gradients, and every kind of stop is followed by
/// the last evaluation and checkpoint.
template <class Events>
class TrainLoop {
 public:
  explicit TrainLoop(Events& events) : events_(events), core_(events.core()) {}

  TrainOutput run(const TrainOptions& options) {
    prepare(options);
    SignalGuard signals(core_.args.enable_jit_checkpoint);
    const auto outside = events_.depth();
    const detail::EndOfUnits end_of_units(core_);
    TrainOutput output;
    events_.template open<TrainEnd>();
    try {
      if (checkpoints_.resumes())
        stoppable([&] { events_.raise(CheckpointLoaded{core_.context(), checkpoints_.path()}); });
      stoppable([&] { events_.raise(TrainBegin{core_.context(), checkpoints_.resumes()}); });
      agree();
      if (checkpoints_.resumes()) {
        stoppable([&] { checkpoints_.begun(); });
        agree();
      }
      work_.begin_reentry();
      enter();
      if (phase().stage == TrainingStage::epochs) run_epochs();
      work_.finish_reentry();
      output = finish();
    } catch (const Interrupted& interrupted) {
      end_interrupted(interrupted, outside);
      end_by(interrupted.signal, signals);
    } catch (...) {
      if (core_.finds_batch_size(std::current_exception())) {
        events_.close_to(outside);
        core_.control = {};
        throw;
      }
      if constexpr (Events::joins_others) core_.ranks.leave(std::current_exception());
      std::optional<AnyTrainingCheckpoints::SafePoint> now;
      events_.attempt([&] { now = checkpoints_.safe_point(); });
      events_.report(std::current_exception());
      events_.attempt([&] { work_.save_after_exception(now); });
      end_early(outside);
      throw;
    }
    if (const int signal = SignalGuard::came()) end_by(signal, signals);  // too late to interrupt
    return output;
  }

 private:
  void prepare(const TrainOptions& options) {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::setup);
    events_.check_trackers();
    check_eval_datasets(core_);
    if (core_.options.model_init && core_.trained_before) core_.make_model();
    core_.trained_before = true;
    checkpoints_.find(options.resume_from_checkpoint);
    core_.train_dataloader = made_by("get_train_dataloader", events_.trainer().get_train_dataloader());
    stop_later(core_.control, [&] { announce_loader(events_, *core_.train_dataloader, LoaderUse::train); });
    if constexpr (Events::template is_heard<AccumulationPlanned>())
      core_.accumulation.vary([&events = events_](std::int64_t epoch) {
        auto& core = events.core();
        auto steps = core.args.gradient_accumulation_steps;
        stop_later(core.control, [&] {
          steps = events.raise(AccumulationPlanned{core.context(), epoch, steps}).gradient_accumulation_steps;
        });
        return steps;
      });
    plan_ = plan_training(core_.args, core_.ranks.most(core_.train_dataloader->size()),
                          core_.accumulation.by_epoch());

    core_.begin_training();
    if (checkpoints_.resumes()) checkpoints_.load_training(plan_);
    begin_trial(options.trial);
    core_.share_model();
    core_.set_plan(plan_);
    first_step_ = core_.state.global_step;
    core_.model.train(true);
    if (core_.optimizers.empty())
      core_.optimizers.add({"", made_by("create_optimizer", events_.trainer().create_optimizer())});
    if (core_.args.auto_microbatching && core_.optimizers.main()->needs_closure())
      throw ArgumentError(
          "auto_microbatching is true: must be false with an optimizer that evaluates whole batches "
          "repeatedly");
    if (core_.scaler && core_.optimizers.main()->needs_closure())
      throw ArgumentError(
          fmt::format("fp16 is true: must be false with {}, which evaluates its loss several times per step",
                      core_.optimizers.main()->type()));
    for (const auto& each : core_.optimizers)
      if (core_.args.pure_bf16 && !each.optimizer->rounds_bfloat16())
        throw ArgumentError(fmt::format(
            "pure_bf16 is true: must be false with {}, which doesn't round in its updates: Etude's "
            "AdamW, Adam, SGD and Lion do",
            each.optimizer->type()));
    core_.optimizers.begin()->lr_scheduler =
        made_by("create_scheduler", events_.trainer().create_scheduler(plan_.max_steps + skipped_of_plan()));
    update_.join_gradients();
    if (checkpoints_.resumes()) checkpoints_.load_rest();
    core_.optimizers.zero_grad();
    MetricCheck<Events>::run(events_);
    core_.log_window.start_clock(core_.state.num_input_tokens_seen);
  }

  void begin_trial(const std::optional<HyperparameterTrial>& trial) {
    core_.state.is_hyper_param_search = trial.has_value();
    core_.state.trial_name = trial ? std::optional(trial->name) : std::nullopt;
    core_.state.trial_params = trial ? trial->params : nullptr;
    if (trial) prune_ = trial->prune;
  }

  TrainingPhase& phase() const { return core_.progress.phase; }

  /// Enters the training where it begins or, if it is resumed, where it was.
  void enter() {
    if (!phase().has_started()) {
      stoppable([&] { evaluate_at_start(); });
      agree();
    }
    if (!phase().is_at_end() || stop_is_due()) return;
    const bool is_pending = phase().stage == TrainingStage::finishing;
    if (is_pending && !phase().epoch_is_open()) stoppable([&] { log_save_evaluate(); });
    phase().continue_training();
  }

  void evaluate_at_start() {
    const bool keep = core_.args.eval_on_start && !core_.control.should_training_stop && evaluate();
    phase().enter(TrainingStage::epochs);
    if (keep) save_best();
  }

  bool stop_is_due() const {
    return core_.control.should_training_stop || core_.state.global_step >= plan_.max_steps;
  }

  void run_epochs() {
    auto& position = core_.progress.position;
    while (position.epoch < plan_.num_train_epochs && (phase().epoch_is_open() || !stop_is_due())) {
      // If the epoch's steps were done when the checkpoint was written, only its end is left.
      const bool ended = phase().epoch_has_ended() && (position.exhausted || stop_is_due());
      events_.template open<TrainingRunEpochEnd>();
      if (!ended) events_.template open<EpochEnd>();
      stoppable([&] {
        begin_epoch();
        if (!ended) run_steps();
      });
      if (!ended) {
        const auto rest = core_.train_dataloader->size(position.examples);
        if (core_.control.should_epoch_stop || (rest && *rest == 0)) position.exhausted = true;
        if (phase().epoch != EpochPhase::epoch_end) phase().enter(EpochPhase::epoch_end);
        stoppable([&] { events_.leave(EpochEnd{core_.context(), position.exhausted}); });
        agree();
      }
      if (phase().epoch == EpochPhase::epoch_end) stoppable([&] { log_save_evaluate(); });
      stoppable([&] { events_.leave(TrainingRunEpochEnd{core_.context(), position.exhausted}); });
      agree();
      epoch_was_stopped_ = std::exchange(core_.control.should_epoch_stop, false);
      if (position.exhausted) {
        position = {.epoch = position.epoch + 1, .dataset_state = position.dataset_state};
        phase().enter(EpochPhase::between);
        extend_epochs();
      }
      if (stop_is_due()) break;  // A signal is handled at the end, which is all that is left.
      core_.ranks.throw_if_interrupted();
    }
  }

  void begin_epoch() {
    const bool is_resumed = work_.reenters_epoch();
    events_.raise(EpochBegin{core_.context(), is_resumed});
    agree();
    if (!phase().epoch_is_open()) phase().enter(EpochPhase::begun);
    if (is_resumed) work_.enter_epoch();
  }

  void run_steps() {
    const PhaseClock::Scope between_steps(core_.phase_clock, TimedPhase::data, /*is_shown=*/false);
    auto& position = core_.progress.position;
    core_.accumulation.begin_epoch(position.epoch);
    const auto left = core_.train_dataloader->size(position.examples);
    const double total = left ? static_cast<double>(position.padded_examples) + core_.padded(*left)
                              : core_.padded(plan_.batches_per_epoch);
    if (phase().epoch == EpochPhase::epoch_end) log_save_evaluate();
    const RaisedFlag in_steps(core_.in_steps);
    if (phase().epoch == EpochPhase::step_end) log_save_evaluate();
    if (phase().epoch != EpochPhase::steps) phase().enter(EpochPhase::steps);
    auto batches = core_.begin_batches();
    while (!core_.stopping() && core_.state.global_step < plan_.max_steps) {
      const PhaseClock::Step step(core_.phase_clock, core_.state.global_step + 1);
      work_.begin_group();
      const auto result = update_.run_group(batches, [&] { return work_.enter_group(); });
      if (result == GradientsResult::given_up) break;
      if (result == GradientsResult::no_batches) {
        if (position.examples == 0) core_.control.request_stop("train_dataset gave no batches");
        work_.forget_group();
        position.exhausted = true;
        position.dataset_state = batches.dataset_state();
        return;
      }
      const auto next = core_.position_after(batches, update_.size());
      samples_ += core_.padded(update_.size());
      update(next, static_cast<double>(position.epoch) + static_cast<double>(next.padded_examples) / total);
    }
    work_.forget_group();
  }

  void update(const DataPosition& next, double epoch) {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::update);
    if (!update_.step(next, epoch)) return skip();
    phase().enter(EpochPhase::step_end);
    work_.end();
    events_.raise(StepEnd{core_.context()});
    agree();
    log_save_evaluate();
    checkpoints_.poll();
    core_.ranks.throw_if_interrupted();
  }

  /// Leaves an update out of the plan, which had one for each group of batches.
  void skip() {
    if (core_.args.max_steps <= 0 && plan_.max_steps > 1) {
      core_.state.max_steps = --plan_.max_steps;
      --core_.progress.extra_steps;
    }
    work_.end();
    events_.raise(StepSkipped{core_.context()});
    agree();
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

  /// Gives all processes the requests that handlers have made in any.
  void agree() {
    if constexpr (Events::joins_others) {
      if (!core_.ranks.several()) return;
      const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::communication);
      core_.ranks.agree(core_.control);
    }
  }

  /// Honours requests in a fixed order, however they came: the log, the evaluation, the checkpoint.
  void log_save_evaluate() {
    auto& control = core_.control;
    const bool is_idle = !control.should_log && !control.should_evaluate && !control.should_save;
    if (std::exchange(control.should_log, false) && core_.log_window.has_steps(core_.state.global_step)) {
      log_step();
      agree();
    }
    bool keep = false;
    if (control.should_evaluate) {
      keep = evaluate();
      agree();
    }
    phase().settle();
    if (std::exchange(control.should_save, false))
      checkpoints_.save("periodic");
    else if (keep)
      save_best();
    if (!is_idle) agree();
  }

  void save_best() {
    checkpoints_.save(core_.args.save_strategy == SaveStrategy::best ? "periodic" : "best");
  }

  /// Returns whether the model is the best so far and should be kept.
  bool evaluate() {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::evaluation);
    // A training that is resumed from the safe point evaluates again.
    core_.control.should_evaluate = phase().has_started();
    if (phase().stage == TrainingStage::finished) phase().enter(TrainingStage::finishing);
    work_.begin_evaluation();
    core_.control.should_evaluate = false;
    const InterruptionScope evaluating(true);
    const RaisedFlag due(core_.evaluation_is_due);
    const Metrics metrics = core_.ranks.first(events_.trainer().evaluate(EvaluateOptions{}));
    work_.end();
    phase().settle();
    for (auto& each : core_.optimizers)
      if (each.lr_scheduler->needs_metric() && phase().has_started())
        each.lr_scheduler->step(best_metric(core_.args, metrics));
    const bool is_best = update_best_metric(core_.args, metrics, core_.state);
    if (prune_ && prune_(metrics, core_.state)) core_.control.request_stop("the trial is pruned");
    return is_best && checkpoints_.may_save() &&
           (core_.args.load_best_model_at_end || core_.args.save_strategy == SaveStrategy::best ||
            core_.options.args.metric_for_best_model);
  }

  void log_step() {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::logging);
    core_.ranks.average(core_.pending_logs, core_.args.logging_by_rank);
    auto logs = core_.log_window.take_logs(core_.state);
    if (core_.scaler) logs["loss_scale"] = core_.scaler->get_scale();
    add_skipped_steps(logs);
    events_.trainer().log(logs);
  }

  void add_skipped_steps(Metrics& logs) const {
    const auto skipped = core_.progress.skipped_steps;
    if (skipped > 0) logs["skipped_steps"] = static_cast<double>(skipped);
  }

  TrainOutput finish() {
    const bool early = core_.state.global_step < plan_.max_steps;
    const bool was_at_end = phase().is_at_end();
    if (phase().stage != TrainingStage::finishing) phase().enter(TrainingStage::finishing);
    auto& reason = core_.control.stop_reason;
    if (early) {
      if (reason.empty())
        reason = core_.control.should_training_stop ? "a callback set should_training_stop"
                 : epoch_was_stopped_               ? "a callback set should_epoch_stop in the last epoch"
                 : core_.state.global_step == 0 && core_.progress.skipped_steps > 0
                     ? (core_.scaler ? "the gradients of all updates overflowed in fp16"
                                     : "the gradients of no update were finite")
                     : "train_dataset has no more batches";
      if (!was_at_end) stoppable([&] { events_.raise(Stop{core_.context(), reason}); });
      agree();
    }
    // First the requests since the last step, then those that came meanwhile or before a stop.
    for (int i = 0; i < 2; ++i) stoppable([&] { log_save_evaluate(); });
    checkpoints_.announce();
    phase().enter(TrainingStage::done);
    TrainOutput output;
    output.stop_reason = early ? reason : "";
    stoppable([&] { log_summary(); });
    if (core_.args.load_best_model_at_end) stoppable([&] { checkpoints_.load_best(); });
    stoppable([&] { events_.template leave<TrainEnd>(); });
    if (checkpoints_.has_news()) events_.trainer().save_state();
    output.global_step = core_.state.global_step;
    output.metrics = summary_;
    if (summary_.contains("train_loss")) output.training_loss = summary_.at("train_loss");
    core_.control = {};
    if (core_.sharded_units) core_.sharded_units->gather();
    return output;
  }

  /// Runs once, however the training ends.
  void log_summary() {
    if (!summary_.empty()) return;
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::logging);
    const auto steps = core_.state.global_step - first_step_;
    auto& window = core_.log_window;
    if (window.has_steps(core_.state.global_step)) window.take_loss(core_.state.global_step);
    summary_ = speed_metrics("train", window.clock_start(), samples(steps), steps);
    core_.ranks.average(core_.pending_logs, core_.args.logging_by_rank);
    summary_["total_flos"] = core_.state.total_flos;
    window.sum_up(summary_, core_.model);
    add_skipped_steps(summary_);
    auto logs = summary_;
    events_.trainer().log(logs);
    summary_ = std::move(logs);
  }

  /// The examples seen in `steps` updates, according to the plan: a shorter last batch counts in full.
  double samples(std::int64_t steps) const {
    if (core_.accumulation.varies()) return samples_;
    return core_.padded(steps) * static_cast<double>(core_.args.gradient_accumulation_steps);
  }

  /// Cleans up after a training that doesn't reach its end.
  void end_early(std::size_t outside) {
    events_.close_to(outside + 1);
    events_.attempt([&] { log_summary(); });
    events_.attempt([&] { checkpoints_.announce(); });
    events_.close_to(outside);
    core_.control = {};
  }

  void end_interrupted(const Interrupted& interrupted, std::size_t outside) {
    events_.attempt([&] { work_.save_after(interrupted); });
    events_.attempt([&] { events_.raise(Stop{core_.context(), interrupted.what()}); });
    end_early(outside);
  }

  /// Ends the process as the signal would have. Returns, by throwing, if the program's own handler for it
  /// returns.
  [[noreturn]] void end_by(int signal, SignalGuard& signals) {
    core_.phase_clock.finish();
    core_.checkpoint_writer.unlock();
    signals.restore_with_others(signal);
    throw Interrupted(signal);
  }

  /// Runs one part of the training. A `StopTraining` thrown from it closes the open scopes and becomes a
  /// request to stop.
  template <class Part>
  void stoppable(Part part) {
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

  Events& events_;
  TrainerCore& core_;
  TrainPlan plan_;
  std::int64_t first_step_ = 0;
  double samples_ = 0;
  bool epoch_was_stopped_ = false;
  std::function<bool(const Metrics&, const TrainerState&)> prune_;
  Metrics summary_;
  Update<Events> update_{events_};
  TrainingCheckpoints<Events> checkpoints_{events_};
  WorkUnderWay work_{core_, checkpoints_};
};

}  // namespace etude::inline v0
