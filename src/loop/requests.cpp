#include "requests.hpp"

#include "etude/base/interrupt.hpp"
#include "etude/base/scoped_value.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

void Requests::evaluate_at_start() {
  const bool keep = core_.args.eval_on_start && !core_.control.should_training_stop && evaluate();
  loop_state().enter(TrainingStage::epochs);
  if (keep) save_best();
}

void Requests::agree() {
  core_.remote.take_cancel(core_.control);
  if (!core_.ranks.several()) return;
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::communication);
  core_.ranks.agree(core_.control);
}

void Requests::honour() {
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
  loop_state().settle();
  if (std::exchange(control.should_save, false))
    checkpoints_.save("periodic");
  else if (keep)
    save_best();
  if (!is_idle) agree();
}

void Requests::save_best() {
  checkpoints_.save(core_.args.save_strategy == SaveStrategy::best ? "periodic" : "best");
}

bool Requests::evaluate() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::evaluation);
  // A training that is resumed from the safe point evaluates again.
  core_.control.should_evaluate = loop_state().has_started();
  if (loop_state().stage == TrainingStage::finished) loop_state().enter(TrainingStage::finishing);
  work_.begin_evaluation();
  core_.control.should_evaluate = false;
  const InterruptionScope evaluating(true);
  const ScopedValue due(core_.evaluation_is_due, true);
  const Metrics metrics = [&] {
    const AveragedWeightsInUse weights(core_.optimizers);  // also for a custom `evaluate`
    return core_.ranks.first(events_.trainer().evaluate(EvaluateOptions{}));
  }();
  work_.end();
  loop_state().settle();
  for (auto& each : core_.optimizers)
    if (each.lr_scheduler->needs_metric() && loop_state().has_started())
      each.lr_scheduler->step(best_metric(core_.args, metrics));
  const bool is_best = update_best_metric(core_.args, metrics, core_.state);
  if (prune_ && prune_(metrics, core_.state)) core_.control.request_stop("the trial is pruned");
  return is_best && core_.may_save() &&
         (core_.args.load_best_model_at_end || core_.args.save_strategy == SaveStrategy::best ||
          core_.options.args.metric_for_best_model);
}

void Requests::log_step() {
  const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::logging);
  core_.ranks.average(core_.pending_logs, core_.args.logging_by_rank);
  auto logs = core_.log_window.take_logs(core_.state);
  if (core_.scaler) logs["loss_scale"] = core_.scaler->get_scale();
  core_.add_skipped_steps(logs);
  events_.trainer().log(logs);
}

}  // namespace etude::inline v0
