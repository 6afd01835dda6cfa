#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>

#include "etude/base/error.hpp"
#include "etude/dispatch/callback_checks.hpp"
#include "etude/loop/core.hpp"

namespace etude::inline v0 {

namespace mistake {
template <class Trainer>
struct automatic_optimization_is_false_so_override_training_step_which_makes_the_steps;
}  // namespace mistake

namespace detail {
/// Whether the class of a trainer says that its `training_step` makes the steps of the optimizers:
/// `static constexpr bool automatic_optimization = false;`, as in Lightning.
template <class Derived, class Base>
consteval bool steps_by_hand() {
  if constexpr (requires { Derived::automatic_optimization; }) {
    constexpr bool inherits_training_step =
        requires {
          requires std::same_as<decltype(&Derived::training_step), decltype(&Base::training_step)>;
        };
    static_assert(expect < Derived::automatic_optimization || !inherits_training_step,
                  mistake::automatic_optimization_is_false_so_override_training_step_which_makes_the_steps <
                      Derived >> ());
    return !Derived::automatic_optimization;
  } else {
    return false;
  }
}
}  // namespace detail

/// One of a trainer's optimizers, for a `training_step` that makes the steps itself. That trainer declares
/// `static constexpr bool automatic_optimization = false;`, as in Lightning.
class OptimizerHandle {
 public:
  OptimizerHandle(TrainerCore& core, std::size_t place) : core_(core), place_(place) {}

  /// Adds the gradients of `loss`, one element, for this optimizer's parameters only. In a training step,
  /// multiplies the loss by the micro-batch's share of its group, over all processes, and with fp16 by the
  /// scale.
  void backward(const torch::Tensor& loss) const { core_.backward(loss, place_); }

  /// Adds up the gradients of all processes, clips them, updates the parameters and clears the gradients,
  /// unless the gradients overflowed in fp16. In a group of several micro-batches, only the call for the last
  /// one does so, with the gradients of all. Throws ArgumentError outside of a `training_step`, and unless
  /// the trainer declares that it makes the steps.
  void step() const;

  Optimizer* operator->() const { return core_.optimizers[place_].optimizer.get(); }
  Optimizer& operator*() const { return *core_.optimizers[place_].optimizer; }

 private:
  TrainerCore& core_;
  std::size_t place_;
};

}  // namespace etude::inline v0
