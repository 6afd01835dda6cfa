#include "captured_step.hpp"

#include <fmt/format.h>

#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

void CapturedStep::begin() {
  check_events();
  run_.check_captured_loss();
  graph_.emplace(run_.device, trained_.model, *trained_.optimizers.current());
}

void CapturedStep::step(const Batch& batch, OptimizerSteps& steps, detail::FunctionRef<void(Batch&)> run) {
  steps.check_learning_rates();
  check_events();  // callbacks may have been added
  trained_.group.set_num_items({});
  trained_.group.set_divisor({});
  auto& each = trained_.optimizers[0];
  const auto replayed = graph_->replayed();
  const auto results = graph_->run(batch, [&](Batch& inputs) {
    trained_.group.forget_losses();
    run(inputs);
    steps.clip_and_step(each, nullptr, [](const torch::Tensor&) { return true; });
    return std::vector{trained_.group.losses().front(), log_window_.grad_norm()};
  });
  if (graph_->replayed() == replayed) return steps.end_step(each);
  steps.begin_step(each);
  trained_.group.forget_losses();
  trained_.group.add_loss(results[0].clone());
  log_window_.set_grad_norm(results[1]);
  steps.end_step(each);
}

void CapturedStep::check_events() {
  const auto handled = events_.handlers_of(events<ForwardBegin, BackwardBegin, BackwardEnd, GradientsComplete,
                                                  GradientsClipped, PreOptimizerStep>{});
  if (handled.empty()) return;
  throw ArgumentError(fmt::format(
      "cuda_graph is true: must be false with {}, which handles {}, an event inside the captured step",
      handled[0].callbacks[0].first, handled[0].event));
}

}  // namespace etude::inline v0
