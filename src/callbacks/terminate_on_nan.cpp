#include "etude/callbacks/terminate_on_nan.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

void TerminateOnNaNCallback::on(const StepEnd&) const {
  if (expected)
    throw Error(
        "TerminateOnNaNCallback received no loss: training_step must raise BackwardBegin, as Etude's does");
}

void TerminateOnNaNCallback::on(const Evaluate& e) {
  if (evaluations.empty()) return;
  const auto found = e.metrics.find(evaluations.back() + "_loss");
  if (found != e.metrics.end()) check_evaluation(found->second);
}

void TerminateOnNaNCallback::check(const Context& e, double value) {
  if (std::isfinite(value)) return;
  state.triggered = true;
  throw StopTraining(fmt::format("the loss of a batch of step {} is {}", e.state.global_step + 1,
                                 detail::without_sign_of_nan(value)));
}

void TerminateOnNaNCallback::check_evaluation(double value) {
  if (std::isfinite(value)) return;
  state.triggered = true;
  throw StopTraining(fmt::format("{}_loss is {}", evaluations.back(), detail::without_sign_of_nan(value)));
}

void TerminateOnNaNCallback::on(const BackwardBegin& e) {
  if (!std::exchange(expected, false)) return;
  if (e.loss.is_cpu())
    check(e, e.loss.item<double>());
  else
    loss.begin(e.loss);
}

}  // namespace etude::inline v0
