#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstddef>

#include "etude/base/function_ref.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/optim/named_optimizer.hpp"

namespace etude::inline v0 {

/// The steps that the optimizers and their schedules make in one update of the weights.
class OptimizerSteps {
 public:
  /// Whether the norm of an optimizer's gradients lets it make its step.
  using Accepts = detail::FunctionRef<bool(const torch::Tensor& norm)>;

  explicit OptimizerSteps(EventSource& events) : events_(events), core_(events.core()) {}

  void begin();

  /// Whether an optimizer takes part in the step under way.
  bool is_due(std::size_t optimizer) const;
  std::size_t first_due() const;
  /// Whether any has made its step.
  bool has_stepped() const;
  /// Whether gradients of this update have overflowed, with fp16.
  bool has_overflowed() const { return has_overflowed_; }

  /// Makes the step of an optimizer whose gradients are complete, unless those of fp16 have overflowed, or
  /// `accepts(norm)` is false for their norm. `has_batches`: this process has contributed to them.
  void step(std::size_t optimizer, bool has_batches, const Optimizer::Closure& closure, Accepts accepts);

  /// Clips, and lets the optimizer make its step if the norm of its gradients is accepted; returns whether it
  /// is.
  bool apply(NamedOptimizer& each, const Optimizer::Closure& closure, Accepts accepts);

  /// An optimizer is about to change the weights.
  void begin_update(NamedOptimizer& each);

  /// An optimizer has made its step.
  void stepped(NamedOptimizer& each);

  /// Computes the scale of the next step's losses, and lets the schedules of the optimizers that have made a
  /// step make theirs.
  void finish();

  /// An invalid rate would ruin all weights, and a checkpoint that holds it can't be resumed.
  void check_learning_rates() const;

 private:
  /// Whether a handler may look at the gradients between clipping and the next `zero_grad`.
  bool gradients_are_seen() const;

  /// Divides the gradients of fp16 by the scale of the loss, and returns whether they are finite.
  bool unscale(Optimizer& optimizer, bool has_batches);

  /// Computes the scale of the next step's losses.
  void end_scaling();

  EventSource& events_;
  TrainerCore& core_;
  bool has_overflowed_ = false;
};

}  // namespace etude::inline v0
