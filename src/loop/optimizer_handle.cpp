#include "etude/loop/optimizer_handle.hpp"

namespace etude::inline v0 {

void OptimizerHandle::step() const {
  if (!core_.step_by_hand)
    throw ArgumentError(
        "step() of an optimizer is called by a trainer, or at a time, that doesn't make the steps: must be "
        "in a training_step, with `static constexpr bool automatic_optimization = false;`");
  core_.step_by_hand(place_);
}

}  // namespace etude::inline v0
