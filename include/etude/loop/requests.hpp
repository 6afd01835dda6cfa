#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "etude/base/interrupt.hpp"
#include "etude/loop/checkpoints.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/work_under_way.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// Honours what callbacks ask of a training through `TrainerControl`.
template <class Events>
class Requests {
 public:
  /// All must outlive this.
  Requests(Events& events, AnyTrainingCheckpoints& checkpoints, WorkUnderWay& work)
      : events_(events), core_(events.core()), checkpoints_(checkpoints), work_(work) {}

  /// Ends the training when `prune` says so of an evaluation.
  void prune_by(std::function<bool(const Metrics&, const TrainerState&)> prune) { prune_ = std::move(prune); }

  /// The evaluation of `eval_on_start`, after which the epochs begin.
  void evaluate_at_start() {
    const bool keep = core_.args.eval_on_start && !core_.control.should_training_stop && evaluate();
    phase().enter(TrainingStage::epochs);
    if (keep) save_best();
  }

  /// Gives all processes the requests that handlers or other threads have made in any.
  void agree() {
    core_.remote.take_cancel(core_.control);
    if constexpr (Events::joins_others) {
      if (!core_.ranks.several()) return;
      const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::communication);
      core_.ranks.agree(core_.control);
    }
  }

  /// Honours requests in a fixed order, however they came: the log, the evaluation, the checkpoint.
  void honour() {
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

 private:
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
    core_.add_skipped_steps(logs);
    events_.trainer().log(logs);
  }

  TrainingPhase& phase() const { return core_.progress.phase; }

  Events& events_;
  TrainerCore& core_;
  AnyTrainingCheckpoints& checkpoints_;
  WorkUnderWay& work_;
  std::function<bool(const Metrics&, const TrainerState&)> prune_;
};

}  // namespace etude::inline v0
