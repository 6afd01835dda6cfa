#include "etude/loop/optimizer_handle.hpp"

namespace etude::inline v0 {

void OptimizerHandle::step() const {
  if (!core_.step_by_hand)
    throw ArgumentError(
        "step() of an optimizer was called where the trainer makes the steps: must be called in a "
        "training_step, of a trainer with `static constexpr bool automatic_optimization = false;`");
  core_.step_by_hand(place_);
}

}  // namespace etude::inline v0
