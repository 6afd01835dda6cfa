#pragma once

#include <cstdint>

#include "etude/events.hpp"

namespace etude {

/// Asks for logs, evaluations and checkpoints where the strategies of the arguments say so, and for the last
/// ones where training ends: Hugging Face's `DefaultFlowCallback`, which also does the latter when training
/// ends early.
struct DefaultFlowCallback {
  void on(const StepEnd& e) {
    const auto step = e.state.global_step;
    if (step == 1 && e.args.logging_first_step) e.control.should_log = true;
    if (e.args.logging_strategy == IntervalStrategy::steps && due(step, e.state.logging_steps))
      e.control.should_log = true;
    if (evaluates_by_steps(e) && due(step, e.state.eval_steps)) e.control.should_evaluate = true;
    if (e.args.save_strategy == SaveStrategy::steps && due(step, e.state.save_steps))
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
  static bool due(std::int64_t step, std::int64_t interval) { return interval > 0 && step % interval == 0; }

  static bool evaluates_by_steps(const Context& e) {
    return e.args.eval_strategy == IntervalStrategy::steps &&
           e.args.eval_delay <= static_cast<double>(e.state.global_step);
  }

  // At steps that are due, these have been asked for already.
  static void ask_for_the_last(const Context& e) {
    const auto step = e.state.global_step;
    if (evaluates_by_steps(e) && !due(step, e.state.eval_steps)) e.control.should_evaluate = true;
    if (e.args.save_strategy == SaveStrategy::steps && !due(step, e.state.save_steps))
      e.control.should_save = true;
  }
};

}  // namespace etude
