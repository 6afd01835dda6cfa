#pragma once

#include <string>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/libtorch/scalar_copy.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Stops training at the first loss that is NaN or infinite, of a training batch or of an evaluation.
/// Follows pytorch-accelerated's callback of this name.
///
/// The bad batch changes neither weights nor the optimizer's state: its update is given up. On the CPU that
/// is before its backward pass, and reading the loss costs nothing. On a CUDA device the loss sets out for
/// the host before the backward pass, and is looked at when all of that pass is in the device's queue: the
/// wait, if any, is for the forward pass, and the device is never without work. Buffers, such as running
/// means, have seen the batch all the same. Of an optimizer that evaluates the loss several times in a step,
/// the first time counts. An evaluation on the CPU ends at its bad batch, another at its end, by its mean
/// loss.
///
/// `triggered` tells of the run under way, or the last one. Where it stops an `evaluate()` outside of
/// training, that throws StopTraining; the process is never ended.
///
/// It hears `BackwardBegin`, which a trainer that overrides `training_step` has to raise: throws Error at the
/// end of a step that had none.
struct TerminateOnNaNCallback {
  using this_callback = TerminateOnNaNCallback;
  ETUDE_STRUCT(TerminateOnNaNCallback, (bool, triggered, "a loss of this run was not finite", false));

  void on(const TrainBegin&) { triggered = false; }
  void on(const EvaluationRunBegin&) { triggered = false; }

  void on(const ForwardBegin&) { expected = true; }
  // What an optimizer evaluates anew in the midst of its step can't be given up.
  void on(const BackwardBegin& e) {
    if (!std::exchange(expected, false)) return;
    if (e.loss.is_cpu())
      check(e, e.loss.item<double>());
    else
      loss.begin(e.loss);
  }
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

  bool expected = false;                      ///< A micro-batch has set out, its loss is yet to come.
  ScalarCopy loss = {};                       ///< Of the micro-batch under way, if it is on a device.
  std::vector<std::string> evaluations = {};  ///< Those under way, by the prefix of their metrics.

 private:
  void check(const Context& e, double value);
  void check_evaluation(double value);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/terminate_on_nan.ipp"
#endif
