#pragma once

#include <cstdint>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"

namespace etude::inline v0 {

/// Requests logs, evaluations and checkpoints according to the strategies in the arguments, and a last
/// evaluation and checkpoint when training ends, even if it ends early. Follows Hugging Face's
/// `DefaultFlowCallback`. An interval in a unit other than steps ends with the first step that completes it.
/// An interval of time starts over when a run is resumed.
struct DefaultFlowCallback {
  void on(const TrainBegin& e);

  void on(const StepEnd& e);

  void on(const EpochEnd& e);

  void on(const Stop& e) { ask_for_the_last(e); }

 private:
  struct Flow {
    IntervalTimer timer = {};
    std::int64_t asked_at = -1;

    /// An interval of steps needs no state, so a resumed run knows what was due at its first step.
    static bool due_by_steps(const Context& e, const Interval& interval);
    bool due(const Context& e, const Interval& interval);
    bool was_due(const Context& e, const Interval& interval) const {
      return asked_at == e.state.global_step || due_by_steps(e, interval);
    }
  };

  static Interval eval_steps(const Context& e) { return e.args.eval_steps.value_or(e.args.logging_steps); }

  static bool may_evaluate(const Context& e) {
    return e.args.eval_delay <= static_cast<double>(e.state.global_step);
  }

  // Requests the last evaluation and checkpoint unless they were due at this step, and so already requested.
  void ask_for_the_last(const Context& e) const;

  Flow log_, evaluate_, save_;
};

}  // namespace etude::inline v0
