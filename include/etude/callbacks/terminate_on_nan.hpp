#pragma once

#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/libtorch/scalar_copy.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Stops training at the first NaN or infinite loss of a training batch or an evaluation. Follows
/// pytorch-accelerated's callback of this name.
///
/// The bad batch changes neither the weights nor the optimizer's state, since its update is abandoned. On the
/// CPU that happens before its backward pass, and reading the loss costs nothing. On a CUDA device, the loss
/// is copied to the host asynchronously and checked once the whole backward pass is queued: the check waits
/// at most for the forward pass, and the device always has work. Buffers, such as running means, have already
/// seen the batch. With an optimizer that evaluates the loss several times per step, the first evaluation
/// counts. On the CPU, an evaluation ends at its bad batch; on other devices, the mean loss is checked at its
/// end.
///
/// `state.triggered` refers to the current run, or else to the last one. If the callback stops an
/// `evaluate()` outside of training, `evaluate()` throws StopTraining; the process never ends.
///
/// The callback handles `BackwardBegin`. If a trainer overrides `training_step` without raising that event,
/// the callback throws Error at the end of the step.
struct TerminateOnNaNCallback {
  struct State {
    ETUDE_STRUCT(State, (bool, triggered, "a loss of this run was not finite", false));
  };
  State state = {};

  void on(const TrainBegin&) { state.triggered = false; }
  void on(const EvaluationRunBegin&) { state.triggered = false; }

  void on(const ForwardBegin&) { expected = true; }
  // Reevaluations within an optimizer's step can't be abandoned.
  void on(const BackwardBegin& e);
  void on(const BackwardEnd& e) {
    if (loss.pending()) check(e, loss.get());
  }
  void on(const StepEnd&) const;

  void on(const EvaluateBegin& e) { evaluations.emplace_back(e.metric_key_prefix); }
  void on(const PredictionStep& e) {
    if (!evaluations.empty() && e.loss.defined() && e.loss.is_cpu()) check_evaluation(e.loss.item<double>());
  }
  void on(const Evaluate& e);
  void on(const EvaluateEnd&) {
    if (!evaluations.empty()) evaluations.pop_back();
  }

  bool expected = false;                      ///< A micro-batch has begun, and its loss isn't known yet.
  ScalarCopy loss = {};                       ///< The current micro-batch's loss, if it is on a device.
  std::vector<std::string> evaluations = {};  ///< The evaluations under way, by their metrics' prefix.

 private:
  void check(const Context& e, double value);
  void check_evaluation(double value);
};

}  // namespace etude::inline v0
