#include "etude/callbacks/default_flow.hpp"

namespace etude::inline v0 {

void DefaultFlowCallback::on(const TrainBegin& e) {
  log_ = evaluate_ = save_ = {};
  if (e.args.logging_strategy == IntervalStrategy::steps) log_.timer.begin(e, e.args.logging_steps);
  if (e.args.eval_strategy == IntervalStrategy::steps) evaluate_.timer.begin(e, eval_steps(e));
  if (e.args.save_strategy == SaveStrategy::steps) save_.timer.begin(e, e.args.save_steps);
}

void DefaultFlowCallback::on(const StepEnd& e) {
  const auto step = e.state.global_step;
  if (step == 1 && e.args.logging_first_step) e.control.should_log = true;
  if (e.args.logging_strategy == IntervalStrategy::steps && log_.due(e, e.args.logging_steps))
    e.control.should_log = true;
  if (e.args.eval_strategy == IntervalStrategy::steps && evaluate_.due(e, eval_steps(e)) && may_evaluate(e))
    e.control.should_evaluate = true;
  if (e.args.save_strategy == SaveStrategy::steps && save_.due(e, e.args.save_steps))
    e.control.should_save = true;
  if (step >= e.state.max_steps) {
    e.control.should_training_stop = true;
    ask_for_the_last(e);
  }
}

void DefaultFlowCallback::on(const EpochEnd& e) {
  if (e.args.logging_strategy == IntervalStrategy::epoch) e.control.should_log = true;
  if (e.args.eval_strategy == IntervalStrategy::epoch && e.args.eval_delay <= e.state.epoch)
    e.control.should_evaluate = true;
  if (e.args.save_strategy == SaveStrategy::epoch) e.control.should_save = true;
}

bool DefaultFlowCallback::Flow::due_by_steps(const Context& e, const Interval& interval) {
  const auto steps = interval.steps(e.state.max_steps);
  return steps > 0 && e.state.global_step % steps == 0;
}

bool DefaultFlowCallback::Flow::due(const Context& e, const Interval& interval) {
  if (interval.is_of_steps() ? !due_by_steps(e, interval) : !timer.due(e, interval)) return false;
  asked_at = e.state.global_step;
  return true;
}

void DefaultFlowCallback::ask_for_the_last(const Context& e) const {
  if (e.args.eval_strategy == IntervalStrategy::steps && may_evaluate(e) &&
      !evaluate_.was_due(e, eval_steps(e)))
    e.control.should_evaluate = true;
  if (e.args.save_strategy == SaveStrategy::steps && !save_.was_due(e, e.args.save_steps))
    e.control.should_save = true;
}

}  // namespace etude::inline v0
