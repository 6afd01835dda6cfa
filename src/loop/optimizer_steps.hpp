#pragma once

#include <torch/types.h>

#include <cstddef>

#include "etude/base/function_ref.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/non_finite.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "micro_batches.hpp"

namespace etude::inline v0 {

/// The steps that the optimizers and their schedules make in one update of the weights.
class OptimizerSteps {
 public:
  /// Whether the norm of an optimizer's gradients lets it make its step.
  using Accepts = detail::FunctionRef<bool(const torch::Tensor& norm)>;

  /// `batches`: of the update under way. Both must outlive this.
  OptimizerSteps(EventSource& events, const MicroBatches& batches)
      : events_(events), core_(events.core()), batches_(batches) {}

  void begin();
  /// Called before the gradients are computed: remembers what forward passes change, if `on_non_finite` may
  /// need it.
  void begin_gradients();

  /// Whether an optimizer takes part in the step under way.
  bool is_due(std::size_t optimizer) const;
  std::size_t first_due() const;
  /// Whether any optimizer has made its step.
  bool has_stepped() const;
  /// Whether gradients of this update have overflowed, with fp16.
  bool has_overflowed() const { return has_overflowed_; }
  /// Whether `on_non_finite` has rejected gradients: the rest of the update's gradients aren't used.
  bool has_rejected() const { return non_finite_.has_rejected(); }

  /// Makes the step of an optimizer whose gradients are complete: unscales them, clips them, and updates the
  /// weights, unless gradients of fp16 have overflowed, or `on_non_finite` rejects these or earlier ones.
  void step(std::size_t optimizer, const Optimizer::Closure& closure = nullptr);

  /// Clips the gradients, and makes the optimizer's step if their norm is accepted. Returns true if it is.
  bool clip_and_step(NamedOptimizer& each, const Optimizer::Closure& closure, Accepts accepts);

  /// Called when an optimizer is about to change the weights.
  void begin_step(NamedOptimizer& each);
  /// Called when an optimizer has made its step.
  void end_step(NamedOptimizer& each);

  /// Computes the scale of the next losses, and advances the schedules of the optimizers that have made a
  /// step.
  void finish();

  /// Throws ArgumentError for an invalid learning rate, which would ruin all weights, and make a checkpoint
  /// that can't be resumed.
  void check_learning_rates() const;

 private:
  /// Divides the gradients of fp16 by the scale of the loss, and returns whether they are finite.
  bool unscale(Optimizer& optimizer);
  /// Clips the gradients, and returns their norm before clipping.
  torch::Tensor clip(NamedOptimizer& each);
  /// Whether `on_non_finite` lets an update be made. Throws StopTraining if it requires a stop.
  bool accepts(const torch::Tensor& grad_norm);
  /// Whether a handler may look at the gradients between clipping and the next `zero_grad`.
  bool gradients_are_seen() const;
  /// Computes the scale of the next losses.
  void end_scaling();

  EventSource& events_;
  TrainerCore& core_;
  const MicroBatches& batches_;
  NonFiniteUpdates non_finite_{events_};
  bool has_overflowed_ = false;
};

}  // namespace etude::inline v0
