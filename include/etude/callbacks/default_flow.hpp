#pragma once

#include <cstdint>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"

namespace etude::inline v0 {

/// Requests logs, evaluations and checkpoints according to the strategies in the arguments, and the last ones
/// when training ends: Hugging Face's `DefaultFlowCallback`, which also does the latter when training ends
/// early. An interval in a unit other than steps ends with the first step that completes it; one of time
/// starts over in a resumed run.
struct DefaultFlowCallback {
  using this_callback = DefaultFlowCallback;
  void on(const TrainBegin& e) {
    log_ = evaluate_ = save_ = {};
    if (e.args.logging_strategy == IntervalStrategy::steps) log_.timer.begin(e, e.args.logging_steps);
    if (e.args.eval_strategy == IntervalStrategy::steps) evaluate_.timer.begin(e, eval_steps(e));
    if (e.args.save_strategy == SaveStrategy::steps) save_.timer.begin(e, e.args.save_steps);
  }

  void on(const StepEnd& e) {
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

  void on(const EpochEnd& e) {
    if (e.args.logging_strategy == IntervalStrategy::epoch) e.control.should_log = true;
    if (e.args.eval_strategy == IntervalStrategy::epoch && e.args.eval_delay <= e.state.epoch)
      e.control.should_evaluate = true;
    if (e.args.save_strategy == SaveStrategy::epoch) e.control.should_save = true;
  }

  void on(const Stop& e) { ask_for_the_last(e); }

 private:
  struct Flow {
    IntervalTimer timer = {};
    std::int64_t asked_at = -1;

    /// Steps need no state, so a resumed run knows what was due at the step where it begins.
    static bool due_by_steps(const Context& e, const Interval& interval) {
      const auto steps = interval.steps(e.state.max_steps);
      return steps > 0 && e.state.global_step % steps == 0;
    }
    bool due(const Context& e, const Interval& interval) {
      if (interval.is_of_steps() ? !due_by_steps(e, interval) : !timer.due(e, interval)) return false;
      asked_at = e.state.global_step;
      return true;
    }
    bool was_due(const Context& e, const Interval& interval) const {
      return asked_at == e.state.global_step || due_by_steps(e, interval);
    }
  };

  static Interval eval_steps(const Context& e) { return e.args.eval_steps.value_or(e.args.logging_steps); }

  static bool may_evaluate(const Context& e) {
    return e.args.eval_delay <= static_cast<double>(e.state.global_step);
  }

  // At steps that are due, these have already been requested.
  void ask_for_the_last(const Context& e) const {
    if (e.args.eval_strategy == IntervalStrategy::steps && may_evaluate(e) &&
        !evaluate_.was_due(e, eval_steps(e)))
      e.control.should_evaluate = true;
    if (e.args.save_strategy == SaveStrategy::steps && !save_.was_due(e, e.args.save_steps))
      e.control.should_save = true;
  }

  Flow log_, evaluate_, save_;
};

}  // namespace etude::inline v0
